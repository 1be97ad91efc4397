//! A Service as a webhook sees it: new connections go to its endpoints in turn, open ones
//! stay where they are.

use std::{
    collections::BTreeMap,
    io::{self, Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use anyhow::Result;

/// Listens on a port of 127.0.0.1 until it is dropped.
#[derive(Debug)]
pub struct Balancer {
    port: u16,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    closed: bool,
    endpoints: Vec<u16>,
    turn: usize,
    /// Connections that are open, by endpoint.
    open: BTreeMap<u16, usize>,
    /// How long each piece of an answer is kept.
    slow: Duration,
}

impl Balancer {
    /// Starts with these ports behind it.
    pub fn start(port: u16, endpoints: &[u16]) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port))?;
        let shared = Shared { endpoints: endpoints.to_vec(), ..Shared::default() };
        let shared = Arc::new(Mutex::new(shared));
        let inside = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if lock(&inside).closed {
                    break;
                }
                // An endpoint that is gone refuses, and the client sees that.
                let port = lock(&inside).next();
                let server = port.map(|port| (port, TcpStream::connect(("127.0.0.1", port))));
                if let Some((port, Ok(server))) = server {
                    join(&client, &server, port, &inside);
                }
            }
        });
        Ok(Self { port, shared })
    }

    /// From now on these.
    pub fn set(&self, ports: &[u16]) {
        lock(&self.shared).endpoints = ports.to_vec();
    }

    /// From now on each piece of an answer comes so much later.
    pub fn slow(&self, wait: Duration) {
        lock(&self.shared).slow = wait;
    }

    /// Connections that clients hold open to an endpoint.
    pub fn open(&self, port: u16) -> usize {
        lock(&self.shared).open.get(&port).copied().unwrap_or(0)
    }
}

impl Drop for Balancer {
    /// Gives the port back.
    fn drop(&mut self) {
        lock(&self.shared).closed = true;
        // The listener looks when somebody connects.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

impl Shared {
    fn next(&mut self) -> Option<u16> {
        self.turn += 1;
        let at = self.turn.checked_rem(self.endpoints.len())?;
        self.endpoints.get(at).copied()
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn join(client: &TcpStream, server: &TcpStream, port: u16, shared: &Arc<Mutex<Shared>>) {
    let pair =
        |from: &TcpStream, to: &TcpStream| Some((from.try_clone().ok()?, to.try_clone().ok()?));
    let (Some((mut from, mut to)), Some((answers, back))) =
        (pair(client, server), pair(server, client))
    else {
        return;
    };
    *lock(shared).open.entry(port).or_default() += 1;
    let counted = Arc::clone(shared);
    thread::spawn(move || {
        drop(io::copy(&mut from, &mut to));
        drop(to.shutdown(Shutdown::Write));
        lock(&counted).open.entry(port).and_modify(|open| *open -= 1);
    });
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        drop(answer(&answers, &back, &shared));
        drop(back.shutdown(Shutdown::Write));
    });
}

fn answer(mut from: &TcpStream, mut to: &TcpStream, shared: &Mutex<Shared>) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = from.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        thread::sleep(lock(shared).slow);
        to.write_all(buffer.get(..count).unwrap_or_default())?;
    }
}
