//! `hob uptime check`: checks a target once and draws its phases.
#![expect(clippy::print_stdout, reason = "output of a command")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use hob_service::config::Secrets;
use hob_uptime::monitor::check::{
    CertificateExpiry, Check, CheckOutcome, CheckSpec, HttpSpec, MonitorKind, Observation, Phases,
};
use hob_uptime::probe::Probe;
use serde::Serialize;

use crate::cli::{self, CheckArgs, CheckKind};
use crate::config;
use crate::exit::Exit;

/// Width of the waterfall in characters.
const WIDTH: usize = 48;

pub(crate) fn run(args: &CheckArgs, file: Option<&Path>) -> Result<Exit> {
    let check = match read(args) {
        Ok(check) => check,
        Err(errors) => cli::usage_error(&["uptime", "check"], &errors),
    };
    let loaded = config::load(file)?;
    let limits = loaded.section::<hob_uptime::Config>()?.limits(&loaded.terminal_outbound())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("could not start the runtime")?;
    let seen = runtime.block_on(async {
        let probe = Probe::new(limits, Secrets::none());
        probe.run(&check, &args.assertions, args.timeout.get()).await
    });
    if args.json {
        println!("{}", serde_json::to_string_pretty(&Report::new(&seen))?);
    } else {
        print!("{}", draw(&check, &seen));
    }
    Ok(if seen.is_ok() { Exit::Clean } else { Exit::Errors })
}

/// The check, or what is wrong with the arguments.
fn read(args: &CheckArgs) -> Result<Check, String> {
    let kind = match args.kind {
        CheckKind::Http => MonitorKind::Http,
        CheckKind::Tcp => MonitorKind::Tcp,
        CheckKind::Dns => MonitorKind::Dns,
        CheckKind::Certificate => MonitorKind::Certificate,
    };
    let http = HttpSpec {
        method: args.method.clone(),
        headers: args.headers.iter().cloned().collect::<BTreeMap<_, _>>(),
        body: args.body.clone(),
        redirects: args.redirects,
        ..HttpSpec::default()
    };
    let http = (kind == MonitorKind::Http).then_some(http);
    let spec = CheckSpec { kind, target: args.target.clone(), http, dns: None, heartbeat: None };
    let checked = spec.validate().and_then(|check| match check.impossible(&args.assertions) {
        errors if errors.is_empty() => Ok(check),
        errors => Err(errors),
    });
    checked.map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
}

/// The result as JSON.
#[derive(Serialize)]
struct Report<'a> {
    up: bool,
    status_code: Option<u16>,
    failure: Option<Failed<'a>>,
    address: Option<String>,
    certificate_days: Option<i64>,
    phases_ms: Times,
    assertions: Vec<Asserted<'a>>,
}

#[derive(Serialize)]
struct Failed<'a> {
    class: &'static str,
    message: &'a str,
}

#[derive(Serialize)]
struct Times {
    dns: Option<f64>,
    connect: Option<f64>,
    tls: Option<f64>,
    first_byte: Option<f64>,
    total: Option<f64>,
}

#[derive(Serialize)]
struct Asserted<'a> {
    text: &'a str,
    holds: bool,
    found: &'a str,
}

impl<'a> Report<'a> {
    fn new(seen: &'a Observation) -> Self {
        let (status_code, failure) = match &seen.outcome {
            CheckOutcome::Ok { status_code } => (Some(*status_code).filter(|code| *code != 0), None),
            CheckOutcome::Failed(failure) => {
                let failed = Failed { class: failure.class.as_str(), message: failure.message() };
                (failure.status_code, Some(failed))
            }
        };
        let Phases { dns, connect, tls, first_byte, total } = seen.phases;
        let times = Times {
            dns: dns.map(millis),
            connect: connect.map(millis),
            tls: tls.map(millis),
            first_byte: first_byte.map(millis),
            total: total.map(millis),
        };
        let asserted = seen.assertions.iter().map(|result| Asserted {
            text: &result.text,
            holds: result.holds,
            found: &result.found,
        });
        Self {
            up: seen.is_ok(),
            status_code,
            failure,
            address: seen.address.map(|address| address.to_string()),
            certificate_days: seen.certificate.map(CertificateExpiry::days_left),
            phases_ms: times,
            assertions: asserted.collect(),
        }
    }
}

fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

fn draw(check: &Check, seen: &Observation) -> String {
    let mut text = check.target();
    if let Some(address) = seen.address {
        let _ = write!(text, "  at {address}");
    }
    text.push_str("\n\n");
    text.push_str(&waterfall(&seen.phases));
    if !seen.assertions.is_empty() {
        let longest = seen.assertions.iter().map(|result| result.text.chars().count()).max().unwrap_or(0);
        text.push('\n');
        for result in &seen.assertions {
            let mark = if result.holds { '✓' } else { '✗' };
            let _ = writeln!(text, "  {mark} {:longest$}  {}", result.text, result.found);
        }
    }
    text.push('\n');
    if let Some(days) = seen.certificate.map(CertificateExpiry::days_left) {
        let _ = writeln!(text, "  certificate: {days} days left");
    }
    match &seen.outcome {
        CheckOutcome::Ok { status_code: 0 } => text.push_str("  up\n"),
        CheckOutcome::Ok { status_code } => drop(writeln!(text, "  up: {status_code}")),
        CheckOutcome::Failed(failure) => drop(writeln!(text, "  down: {failure}")),
    }
    text
}

/// A line for each phase; each starts where the previous one ended.
fn waterfall(phases: &Phases) -> String {
    let total = phases.total.unwrap_or_default();
    let timed = [
        ("name", phases.dns),
        ("connect", phases.connect),
        ("TLS", phases.tls),
        ("first byte", phases.first_byte),
    ];
    let mut parts: Vec<(&str, Duration)> =
        timed.into_iter().filter_map(|(name, time)| Some((name, time?))).collect();
    let known: Duration = parts.iter().map(|(_, time)| *time).sum();
    // The body, and requests before a redirect.
    parts.push(("rest", total.saturating_sub(known)));
    let mut text = String::new();
    let mut passed = Duration::ZERO;
    for (name, time) in parts {
        let (from, to) = (column(passed, total), column(passed + time, total));
        let bar = "▇".repeat((to - from).max(1));
        let room = WIDTH + 1 - from;
        let _ = writeln!(text, "  {name:10} {:from$}{bar:room$} {:>9.1} ms", "", millis(time));
        passed += time;
    }
    let _ = writeln!(text, "  {:10} {:WIDTH$}  {:>9.1} ms", "total", "", millis(total));
    text
}

fn column(at: Duration, total: Duration) -> usize {
    let share = at.as_secs_f64() / total.as_secs_f64().max(f64::MIN_POSITIVE);
    // Between 0 and WIDTH.
    (share.clamp(0.0, 1.0) * WIDTH as f64).round() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phase_starts_where_the_previous_one_ended() {
        let ms = |ms| Some(Duration::from_millis(ms));
        let phases = Phases { dns: None, connect: ms(25), tls: ms(25), first_byte: ms(50), total: ms(100) };
        let drawn = waterfall(&phases);
        let bars: Vec<(usize, usize)> = drawn
            .lines()
            .take(3)
            .map(|line| {
                let chars: Vec<char> = line.chars().collect();
                let begin = chars.iter().position(|c| *c == '▇').unwrap();
                (begin, chars.iter().filter(|c| **c == '▇').count())
            })
            .collect();
        assert_eq!(bars, [(13, 12), (25, 12), (37, 24)], "{drawn}");
        let widths: Vec<usize> = drawn.lines().map(|line| line.chars().count()).collect();
        assert!(widths.iter().all(|width| *width == widths[0]), "{drawn}");
    }

    #[test]
    fn waterfall_without_phases() {
        assert!(waterfall(&Phases::default()).contains("0.0 ms"));
    }
}
