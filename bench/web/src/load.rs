//! One measurement: `wrk` against a URL, and what it cost the server.

use std::process::Command;

use anyhow::{Context, Result, bail};

const CONNECTIONS: u32 = 32;

/// What a round gave.
pub(crate) struct Figures {
    pub(crate) per_second: f64,
    pub(crate) p99_ms: f64,
    pub(crate) cpu_us: f64,
}

/// Asks for the URL as fast as it is answered. `processes` are the server's.
pub(crate) fn measure(url: &str, processes: &[u32], seconds: u32) -> Result<Figures> {
    let before = cpu_us(processes)?;
    let output = Command::new("wrk")
        .args(["--latency", "-t", "1", "-c", &CONNECTIONS.to_string(), "-d", &format!("{seconds}s"), url])
        .output()
        .context("wrk is missing: apt-get install wrk")?;
    let used = cpu_us(processes)? - before;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() || text.contains("Non-2xx") || text.contains("Socket errors") {
        bail!("wrk was not answered well by {url}:\n{text}");
    }
    let word = |start: &str, nth: usize| {
        let line = text.lines().find(|line| line.trim_start().starts_with(start))?;
        line.split_whitespace().nth(nth)
    };
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<f64>().ok());
    let requests = number(
        text.lines()
            .find(|line| line.contains(" requests in "))
            .and_then(|line| line.split_whitespace().next()),
    );
    let requests = requests.context("wrk did not say how many requests it made")?;
    Ok(Figures {
        per_second: number(word("Requests/sec:", 1)).context("wrk did not say how fast it was")?,
        p99_ms: word("99%", 1).and_then(milliseconds).context("wrk did not say what the p99 was")?,
        cpu_us: used / requests,
    })
}

/// `1.23ms`, `450.00us`, `1.20s`.
fn milliseconds(text: &str) -> Option<f64> {
    let (number, factor) = match text {
        _ if text.ends_with("us") => (&text[..text.len() - 2], 1e-3),
        _ if text.ends_with("ms") => (&text[..text.len() - 2], 1.0),
        _ => (text.strip_suffix('s')?, 1e3),
    };
    number.parse::<f64>().ok().map(|number| number * factor)
}

/// The CPU time that processes have used so far, in microseconds. The kernel counts in hundredths of a second.
fn cpu_us(processes: &[u32]) -> Result<f64> {
    let mut ticks = 0.0;
    for process in processes {
        let text = std::fs::read_to_string(format!("/proc/{process}/stat")).context("the server is gone")?;
        // The name, in parentheses, may hold blanks; user and system time are the 12th and 13th words after it.
        let after = text.rsplit_once(')').context("a strange /proc")?.1;
        let words: Vec<&str> = after.split_whitespace().collect();
        ticks += words[11].parse::<f64>()? + words[12].parse::<f64>()?;
    }
    Ok(ticks * 10_000.0)
}
