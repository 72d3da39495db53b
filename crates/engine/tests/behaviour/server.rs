//! The engine behind its listener, for tests that need sockets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use hob_engine::{Config, Engine, Listener};

pub(crate) struct Server {
    pub(crate) engine: Engine,
    pub(crate) address: SocketAddr,
    _runtime: tokio::runtime::Runtime,
}

impl Server {
    pub(crate) fn start(config: Config) -> Server {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let engine = Engine::new(config);
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = runtime.block_on(Listener::bind(engine.clone(), loopback)).unwrap();
        let address = listener.address().unwrap();
        runtime.spawn(listener.serve(std::future::pending()));
        Server { engine, address, _runtime: runtime }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// Sends bytes over a connection of their own and reads until the server closes it.
    pub(crate) fn last_words(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        // The server may close before it has read everything, which then fails here.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }
}

/// Sends a line and reads what is there until `ending` was seen.
pub(crate) fn ask(stream: &mut TcpStream, line: &str, ending: &str) -> String {
    stream.write_all(format!("{line}\r\n").as_bytes()).unwrap();
    read_to(stream, ending)
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
