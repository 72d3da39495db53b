//! Requests at a constant rate, and their latency.

use std::time::{Duration, Instant};

use anyhow::Result;
use hob_histogram::{Bucket, Histogram, Recorder};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const CONNECTIONS: u32 = 50;
const MAX_US: u64 = 10_000_000;

pub(crate) struct Latency {
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
}

/// Sends SET for so many seconds. A request is sent when it is due, up to the millisecond that timers round to, so its latency
/// is measured from when it was sent.
pub(crate) fn run(port: u16, rate: f64, seconds: usize) -> Result<Latency> {
    let interval = Duration::from_secs_f64(f64::from(CONNECTIONS) / rate);
    let end = Duration::from_secs(seconds.max(1) as u64);
    tokio::runtime::Runtime::new()?.block_on(async {
        let mut clients = JoinSet::new();
        for number in 0..CONNECTIONS {
            let offset = interval * number / CONNECTIONS;
            clients.spawn(client(port, interval, offset, end));
        }
        let mut all = Histogram::<10>::default();
        while let Some(latencies) = clients.join_next().await {
            all.merge(&latencies??);
        }
        let quantile = |q| all.quantile(q).map_or(0, Bucket::highest);
        Ok(Latency { p50_us: quantile(0.5), p99_us: quantile(0.99) })
    })
}

async fn client(port: u16, interval: Duration, offset: Duration, end: Duration) -> Result<Histogram<10>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.set_nodelay(true)?;
    let mut latencies = Recorder::<10>::new(MAX_US);
    let started = Instant::now();
    let mut due = offset;
    let mut reply = [0; 64];
    while due < end {
        tokio::time::sleep_until((started + due).into()).await;
        let sent = Instant::now();
        stream.write_all(b"*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000001\r\n$3\r\nxxx\r\n").await?;
        let mut read = 0;
        while read < 5 {
            read += stream.read(&mut reply).await?;
        }
        latencies.record(u64::try_from(sent.elapsed().as_micros())?);
        due += interval;
    }
    Ok(latencies.drain())
}
