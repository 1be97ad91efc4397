//! A Service as a webhook sees it: new connections go to its endpoints in turn, open ones
//! stay where they are.

use std::{
    io,
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use anyhow::Result;

/// Listens on a port of 127.0.0.1 until the process ends or [`Balancer::close`] is called.
#[derive(Debug)]
pub struct Balancer {
    port: u16,
    endpoints: Arc<Mutex<Option<Vec<u16>>>>,
}

impl Balancer {
    /// Starts with these ports behind it.
    pub fn start(port: u16, endpoints: &[u16]) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port))?;
        let endpoints = Arc::new(Mutex::new(Some(endpoints.to_vec())));
        let shared = endpoints.clone();
        thread::spawn(move || {
            for (turn, client) in listener.incoming().enumerate() {
                let Some(port) = pick(&shared, turn) else { break };
                // An endpoint that is gone refuses, and the client sees that.
                if let (Ok(client), Some(port)) = (client, port)
                    && let Ok(server) = TcpStream::connect(("127.0.0.1", port))
                {
                    join(&client, &server);
                }
            }
        });
        Ok(Self { port, endpoints })
    }

    /// From now on these.
    pub fn set(&self, ports: &[u16]) {
        *self.endpoints.lock().unwrap_or_else(PoisonError::into_inner) = Some(ports.to_vec());
    }

    /// Gives the port back.
    pub fn close(self) {
        *self.endpoints.lock().unwrap_or_else(PoisonError::into_inner) = None;
        // The listener looks when somebody connects.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

/// `None` when closed.
#[allow(clippy::option_option, reason = "closed, without endpoints, with one")]
fn pick(endpoints: &Mutex<Option<Vec<u16>>>, turn: usize) -> Option<Option<u16>> {
    let endpoints = endpoints.lock().unwrap_or_else(PoisonError::into_inner);
    let ports = endpoints.as_ref()?;
    Some(turn.checked_rem(ports.len()).and_then(|at| ports.get(at)).copied())
}

fn join(client: &TcpStream, server: &TcpStream) {
    let pair =
        |from: &TcpStream, to: &TcpStream| Some((from.try_clone().ok()?, to.try_clone().ok()?));
    for (mut from, mut to) in [pair(client, server), pair(server, client)].into_iter().flatten() {
        thread::spawn(move || {
            drop(io::copy(&mut from, &mut to));
            drop(to.shutdown(Shutdown::Write));
        });
    }
}
