//! `wrk` against a URL.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::process::output;

/// The figures that `wrk` reported.
#[derive(Clone, Copy, Debug)]
pub struct Wrk {
    pub requests: u64,
    pub per_second: f64,
    pub p50: Duration,
    pub p99: Duration,
}

/// Requests the URL at full speed over this many connections of one thread. An error response ends the benchmark.
/// `command` starts `wrk`, for example pinned to a core.
pub fn wrk(command: &mut Command, url: &str, connections: u32, seconds: u32) -> Result<Wrk> {
    let (connections, length) = (connections.to_string(), format!("{seconds}s"));
    command.args(["--latency", "-t", "1", "-c", &connections, "-d", &length, url]);
    let text = output(command).context("apt-get install wrk")?;
    let ok = !text.contains("Non-2xx") && !text.contains("Socket errors");
    ensure!(ok, "{url} sent error responses:\n{text}");
    read(&text).with_context(|| format!("unexpected output of wrk:\n{text}"))
}

fn read(text: &str) -> Option<Wrk> {
    let line = |is: &dyn Fn(&str) -> bool| text.lines().map(str::trim).find(|line| is(line));
    let latency = |share: &str| duration(line(&|line| line.starts_with(share))?.split_whitespace().nth(1)?);
    let requests = line(&|line| line.contains(" requests in "))?.split_whitespace().next()?;
    let per_second = line(&|line| line.starts_with("Requests/sec:"))?.split_whitespace().nth(1)?;
    Some(Wrk {
        requests: requests.parse().ok()?,
        per_second: per_second.parse().ok()?,
        p50: latency("50%")?,
        p99: latency("99%")?,
    })
}

/// `1.23ms`, `450.00us`, `1.20s`.
fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|sign: char| sign.is_ascii_alphabetic())?);
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return None,
    };
    Some(Duration::from_secs_f64(number.parse::<f64>().ok()? * seconds))
}
