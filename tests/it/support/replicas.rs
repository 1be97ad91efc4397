//! Two controllers, and what the Service in front of them does.

use std::{
    io,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use anyhow::{Context as _, Result, bail, ensure};

use super::{
    process::Process,
    tidegate::{Replica, Tidegate, free_port, get},
    wait,
};

/// Two controllers in place of an installation's usual one.
#[derive(Debug)]
pub struct Replicas {
    tidegate: &'static Tidegate,
    all: [(Replica, Option<Process>); 2],
    _service: Service,
}

impl Replicas {
    /// Ends the usual controller in good order and starts two with such flags.
    pub async fn start(tidegate: &'static Tidegate, flags: &[&str]) -> Result<Self> {
        Self::start_at(tidegate, flags, [tidegate.cluster().url(); 2]).await
    }

    /// The same with something between each and the apiserver.
    pub async fn start_at(
        tidegate: &'static Tidegate,
        flags: &[&str],
        [a, b]: [&str; 2],
    ) -> Result<Self> {
        tidegate.stop_controller("TERM")?;
        let replica = |name: &str, server: &str| -> Result<Replica> {
            Ok(Replica {
                name: name.to_owned(),
                server: server.to_owned(),
                visibility: free_port()?,
                health: free_port()?,
                flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
            })
        };
        let all = [replica("controller-a", a)?, replica("controller-b", b)?];
        let service =
            Service::start(tidegate.visibility_port(), all.each_ref().map(|it| it.visibility))?;
        let all = all.map(|replica| (replica, None));
        let mut replicas = Self { tidegate, all, _service: service };
        for which in 0..2 {
            replicas.restart(which).await?;
        }
        replicas.are_ready().await?;
        Ok(replicas)
    }

    /// Starts one that has ended.
    pub async fn restart(&mut self, which: usize) -> Result<()> {
        let (replica, process) = &mut self.all[which];
        *process = None;
        *process = Some(self.tidegate.start_replica(replica).await?);
        Ok(())
    }

    /// Whether one runs, be it stopped.
    pub fn is_alive(&mut self, which: usize) -> bool {
        self.all[which].1.as_mut().is_some_and(|process| process.check().is_ok())
    }

    /// Process id of one that was started and not ended from here.
    pub fn pid(&self, which: usize) -> Option<u32> {
        self.all[which].1.as_ref().map(Process::pid)
    }

    /// The last words of one.
    pub fn tail(&self, which: usize) -> String {
        self.all[which].1.as_ref().map_or_else(String::new, Process::tail)
    }

    /// Waits until both can answer for the whole cluster.
    pub async fn are_ready(&mut self) -> Result<()> {
        wait::until("both controllers are ready", wait::START, async || {
            for (replica, process) in &mut self.all {
                process.as_mut().map_or(Ok(()), Process::check)?;
                let (code, body) = get(replica.health, "/readyz").await?;
                ensure!(code == 200, "{}: {body}", replica.name);
            }
            Ok(true)
        })
        .await
    }

    /// Waits until one of them leads, and is not that one.
    pub async fn leader_but(&self, not: Option<usize>) -> Result<usize> {
        wait::for_some("one leads", wait::SOON, async || {
            for which in (0..2).filter(|&which| Some(which) != not) {
                if self.metric(which, "tidegate_leader").await.unwrap_or_default() > 0.5 {
                    return Ok(Some(which));
                }
            }
            bail!("nobody does:\n{}", self.tails())
        })
        .await
    }

    /// A metric without labels.
    pub async fn metric(&self, which: usize, name: &str) -> Result<f64> {
        let (_, text) = get(self.all[which].0.health, "/metrics").await?;
        let of = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok();
        text.lines().find_map(of).with_context(|| format!("no {name}"))
    }

    /// Sends one a signal.
    pub fn signal(&self, which: usize, signal: &str) -> Result<()> {
        self.all[which].1.as_ref().context("it does not run")?.signal(signal)
    }

    /// Ends one by a signal and waits until it is gone.
    pub fn end(&mut self, which: usize, signal: &str) -> Result<()> {
        self.all[which].1.take().context("it does not run")?.end(signal)
    }

    /// Waits until one has ended by itself; all it said.
    pub async fn ended(&mut self, which: usize) -> Result<String> {
        let mut process = self.all[which].1.take().context("it does not run")?;
        wait::until("it ends by itself", wait::SOON, async || Ok(process.check().is_err())).await?;
        process.log()
    }

    /// The last words of both.
    pub fn tails(&self) -> String {
        let tail = |which: usize| format!("{}:\n{}\n", self.all[which].0.name, self.tail(which));
        (0..2).map(tail).collect()
    }
}

impl Drop for Replicas {
    /// In good order, so that whoever comes next need not wait for a Lease to expire.
    fn drop(&mut self) {
        for (_, process) in &mut self.all {
            if let Some(process) = process.take()
                && process.signal("CONT").and_then(|()| process.end("TERM")).is_err()
            {
                eprintln!("a controller had ended by itself");
            }
        }
    }
}

/// Sends each connection to the first backend that takes it.
#[derive(Debug)]
struct Service {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Service {
    fn start(port: u16, backends: [u16; 2]) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port))?;
        let (address, stop) = (listener.local_addr()?, Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let accepting = std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let backend = |port| TcpStream::connect(("127.0.0.1", port)).ok();
                if let Some(server) = backends.into_iter().find_map(backend) {
                    join(&client, &server);
                }
            }
        });
        Ok(Self { address, stop, accepting: Some(accepting) })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        let woken = TcpStream::connect(self.address).is_ok();
        if let Some(accepting) = self.accepting.take().filter(|_| woken) {
            accepting.join().unwrap_or_else(|_| eprintln!("the service broke"));
        }
    }
}

/// Copies both ways until either side ends.
fn join(client: &TcpStream, server: &TcpStream) {
    for (from, to) in [(client, server), (server, client)] {
        let (Ok(mut from), Ok(mut to)) = (from.try_clone(), to.try_clone()) else { return };
        std::thread::spawn(move || {
            let copied = io::copy(&mut from, &mut to);
            for socket in [from, to] {
                if socket.shutdown(Shutdown::Both).is_err() && copied.is_err() {
                    return;
                }
            }
        });
    }
}
