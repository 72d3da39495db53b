//! Requests at a steady pace, from threads that sleep in between. Measures each from when it was sent.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

/// Requests per second of one thread: beyond that, sleeps are too short to be accurate.
const PER_THREAD: f64 = 1500.0;

/// The p99 at this rate.
pub(crate) fn p99(address: SocketAddr, per_second: f64, lasting: Duration) -> Result<Duration> {
    let threads = (per_second / PER_THREAD).ceil().max(1.0);
    let every = Duration::from_secs_f64(threads / per_second);
    let mut took = std::thread::scope(|scope| {
        let send = |number: u32| {
            let first = every * number / threads as u32;
            scope.spawn(move || ask(address, first, every, lasting))
        };
        let asking: Vec<_> = (0..threads as u32).map(send).collect();
        let mut took = Vec::new();
        for asking in asking {
            took.extend(asking.join().map_err(|_| anyhow::anyhow!("a thread ended"))??);
        }
        Ok::<_, anyhow::Error>(took)
    })?;
    took.sort_unstable();
    ensure!(!took.is_empty(), "nothing was asked");
    Ok(took[took.len() * 99 / 100])
}

fn ask(address: SocketAddr, first: Duration, every: Duration, lasting: Duration) -> Result<Vec<Duration>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let request = format!("GET /api/things/7 HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let (mut took, mut answer) = (Vec::new(), [0; 4096]);
    let begun = Instant::now();
    let mut due = begun + first;
    while begun.elapsed() < lasting {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        // A late request does not make the next ones hurry: the pace stays steady.
        due = Instant::now() + every;
        let sent = Instant::now();
        stream.write_all(request.as_bytes())?;
        let mut filled = 0;
        // Every response ends with the upstream's body.
        while !answer[..filled].ends_with(b"abcdef") {
            let read = stream.read(&mut answer[filled..])?;
            ensure!(read > 0, "{address} hung up");
            filled += read;
        }
        took.push(sent.elapsed());
        ensure!(answer.starts_with(b"HTTP/1.1 200"), "{address} refused");
    }
    // The first requests find cold caches.
    Ok(took.split_off(took.len() / 10))
}
