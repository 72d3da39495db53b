//! The engine behind its listener, for tests that need sockets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use hob_engine::{Config, Engine, Listener};
use hob_testkit::LIMIT;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

pub(crate) struct Server {
    pub(crate) engine: Engine,
    pub(crate) address: SocketAddr,
    pub(crate) runtime: tokio::runtime::Runtime,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Server {
    /// With a single worker, so that a blocked thread blocks everything.
    pub(crate) fn start(config: Config) -> Server {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let engine = Engine::new(config);
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = runtime.block_on(Listener::bind(engine.clone(), loopback)).unwrap();
        let address = listener.address().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = runtime.spawn(listener.serve(async move { drop(stopped.await) }));
        Server { engine, address, runtime, serving, stop }
    }

    /// Stops the listener, and waits until it has stopped.
    pub(crate) fn stop(self) {
        drop(self.stop);
        let ended = self.runtime.block_on(async { timeout(LIMIT, self.serving).await });
        ended.expect("the listener ends").unwrap();
        // An endless script may still run.
        self.runtime.shutdown_background();
    }

    /// Whether the runtime still runs tasks.
    pub(crate) fn runs_tasks(&self) -> bool {
        let (ran, seen) = std::sync::mpsc::channel();
        self.runtime.spawn(async move { ran.send(()) });
        seen.recv_timeout(LIMIT).is_ok()
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// Sends bytes over a new connection and reads until the server closes it.
    pub(crate) fn read_until_closed(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        // The server may close the connection before it has read everything.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }
}

/// Sends a line and reads until `ending`.
pub(crate) fn ask(stream: &mut TcpStream, line: &str, ending: &str) -> String {
    send(stream, line);
    read_to(stream, ending)
}

pub(crate) fn send(stream: &mut TcpStream, line: &str) {
    stream.write_all(format!("{line}\r\n").as_bytes()).unwrap();
}

pub(crate) fn read_to(stream: &mut TcpStream, ending: &str) -> String {
    let mut answer = String::new();
    let mut byte = [0];
    while !answer.ends_with(ending) {
        stream.read_exact(&mut byte).unwrap_or_else(|error| panic!("{error} after {answer:?}"));
        answer.push(char::from(byte[0]));
    }
    answer
}
