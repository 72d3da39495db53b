//! The history of the demo's monitors: summaries of 90 days, the results of the last hours, and some incidents.

use std::f64::consts::TAU;
use std::ops::Range;

use hob_database::{Isolation, Transaction, UnixMs};
use hob_service::noise;

use crate::database::past::{self, PastIncident};
use crate::database::{incidents, summaries, updates};
use crate::error::{Error, Result};
use crate::incident::{Note, Update, UpdateStatus};
use crate::keys::MonitorId;
use crate::monitor::Monitor;
use crate::monitor::history::{self, DAY_MS, HOUR_MS, NewResult, Span, Summary};
use crate::schedule::state::MonitorState;
use crate::uptime::Uptime;

const DAYS: i64 = 90;
/// Hourly summaries go back this far.
const HOURS: i64 = 8 * 24;
/// Single results go back to the start of the hour before the previous one.
const RESULT_HOURS: i64 = 2;
/// Between two of these results.
const RESULT_EVERY_MS: i64 = 30_000;
/// Checks of an hour.
const PER_HOUR: u64 = 120;

/// An outage of one or more monitors.
struct Outage {
    monitors: &'static [&'static str],
    /// Before now.
    minutes_ago: i64,
    minutes: i64,
    class: &'static str,
    message: &'static str,
    acknowledged_by: Option<&'static str>,
    notes: &'static [(&'static str, &'static str)],
    /// Updates on the status page.
    updates: &'static [(UpdateStatus, &'static str)],
}

const DAY_MINUTES: i64 = 24 * 60;

const OUTAGES: [Outage; 8] = [
    Outage {
        monitors: &["demo-search"],
        minutes_ago: 7 * 60 + 12,
        minutes: 9,
        class: "assertion",
        message: "latency 1.1 s, expected latency < 800ms",
        acknowledged_by: None,
        notes: &[],
        updates: &[
            (UpdateStatus::Investigating, "Searches take longer than usual. We are looking for the cause."),
            (UpdateStatus::Resolved, "A backup slowed down the index. It is fast again."),
        ],
    },
    Outage {
        monitors: &["demo-shop", "demo-orders"],
        minutes_ago: 2 * DAY_MINUTES + 310,
        minutes: 14,
        class: "assertion",
        message: "status 503, expected status in 200..299",
        acknowledged_by: Some("anna"),
        notes: &[
            ("anna", "The new release does not start. Rolling back."),
            ("anna", "Rolled back, orders work again."),
        ],
        updates: &[
            (UpdateStatus::Investigating, "Some orders fail. We are looking into it."),
            (
                UpdateStatus::Identified,
                "The new release does not start. We are going back to the previous one.",
            ),
            (UpdateStatus::Monitoring, "The previous release is running. We are watching it."),
            (UpdateStatus::Resolved, "Orders work again. None were lost."),
        ],
    },
    Outage {
        monitors: &["demo-search"],
        minutes_ago: 9 * DAY_MINUTES + 700,
        minutes: 47,
        class: "assertion",
        message: "latency 1.9 s, expected latency < 800ms",
        acknowledged_by: Some("emil"),
        notes: &[("emil", "The index was being rebuilt. It now runs at night.")],
        updates: &[(UpdateStatus::Identified, "The search index is being rebuilt. Results arrive late.")],
    },
    Outage {
        monitors: &["demo-shop"],
        minutes_ago: 23 * DAY_MINUTES + 95,
        minutes: 6,
        class: "timeout",
        message: "no response within 2 s",
        acknowledged_by: None,
        notes: &[],
        updates: &[],
    },
    Outage {
        monitors: &["demo-backup"],
        minutes_ago: 31 * DAY_MINUTES + 480,
        minutes: 9 * 60,
        class: "silent",
        message: "no call from the job",
        acknowledged_by: Some("bert"),
        notes: &[("bert", "The disk was full. Deleted old archives and set a limit.")],
        updates: &[],
    },
    Outage {
        monitors: &["demo-database", "demo-orders", "demo-shop"],
        minutes_ago: 44 * DAY_MINUTES + 1200,
        minutes: 125,
        class: "connect",
        message: "connection refused",
        acknowledged_by: Some("carl"),
        notes: &[("carl", "The machine was replaced. Restored from the replica.")],
        updates: &[],
    },
    Outage {
        monitors: &["demo-blog"],
        minutes_ago: 61 * DAY_MINUTES + 30,
        minutes: 35,
        class: "tls",
        message: "certificate expired",
        acknowledged_by: Some("dora"),
        notes: &[],
        updates: &[],
    },
    Outage {
        monitors: &["demo-search"],
        minutes_ago: 78 * DAY_MINUTES + 640,
        minutes: 3,
        class: "timeout",
        message: "no response within 2 s",
        acknowledged_by: None,
        notes: &[],
        updates: &[],
    },
];

impl Outage {
    fn range(&self, now: UnixMs) -> Range<i64> {
        let start = now.0 - self.minutes_ago * 60_000;
        start..start + self.minutes * 60_000
    }
}

/// A monitor's times of outage, and how fast its target is.
struct Past {
    id: MonitorId,
    number: u64,
    typical_us: f64,
    outages: Vec<Range<i64>>,
}

impl Past {
    fn new(monitor: &Monitor, now: UnixMs) -> Option<Self> {
        let (number, typical_us) = match monitor.id.as_str() {
            "demo-shop" => (1, 38_000.0),
            "demo-blog" => (2, 21_000.0),
            "demo-search" => (3, 160_000.0),
            "demo-orders" => (4, 52_000.0),
            "demo-database" => (5, 1_900.0),
            "demo-retired" => (6, 25_000.0),
            "demo-backup" => (7, 0.0),
            _ => return None,
        };
        let affected = OUTAGES.iter().filter(|outage| outage.monitors.contains(&monitor.id.as_str()));
        let outages = affected.map(|outage| outage.range(now)).collect();
        Some(Self { id: monitor.id.clone(), number, typical_us, outages })
    }

    fn is_down(&self, at: i64) -> bool {
        self.outages.iter().any(|outage| outage.contains(&at))
    }

    /// The latency at a time: slower in the afternoon, and now and then much slower.
    fn latency_us(&self, at: i64, chance: f64) -> u64 {
        let wave = 1.0 + 0.25 * (((at % DAY_MS) as f64 / DAY_MS as f64 - 0.4) * TAU).sin();
        let week = 1.0 + 0.1 * noise(self.number << 32 | (at / DAY_MS) as u64);
        let slow = if chance > 0.985 { 4.0 } else { 0.7 + 0.6 * chance };
        (self.typical_us * wave * week * slow) as u64
    }

    fn summary(&self, start_ms: i64, length_ms: i64, checks: u64) -> Summary {
        let mut summary = Summary { start_ms, ..Summary::default() };
        let step = length_ms / checks as i64;
        for check in 0..checks {
            let at = start_ms + check as i64 * step;
            if self.is_down(at) {
                summary.bad += 1;
            } else {
                summary.good += 1;
                summary.latencies.record(self.latency_us(at, self.chance(at)));
            }
        }
        summary
    }

    fn chance(&self, at: i64) -> f64 {
        noise(self.number << 48 ^ at as u64)
    }

    fn result(&self, at: i64) -> NewResult {
        let down = self.is_down(at);
        NewResult {
            monitor: self.id.clone(),
            at: UnixMs(at),
            fence: 0,
            state: if down { MonitorState::Down } else { MonitorState::Up },
            latency_us: self.latency_us(at, self.chance(at)),
            error: down.then(|| "down".to_owned()),
        }
    }
}

/// Writes the history of the demo's monitors, unless an earlier demo has written it.
pub(super) async fn write(uptime: &Uptime) -> Result<()> {
    let now = UnixMs::now();
    let monitors = uptime.monitors();
    let new = monitors.iter().filter(|monitor| monitor.created_at.0 > now.0 - DAY_MS);
    let pasts: Vec<Past> = new.filter_map(|monitor| Past::new(monitor, now)).collect();
    if pasts.is_empty() {
        return Ok(());
    }
    let database = uptime.database();
    let (pasts, today) = (&pasts, now.0 - now.0.rem_euclid(DAY_MS));
    let results_from = now.0 - now.0.rem_euclid(HOUR_MS) - RESULT_HOURS * HOUR_MS;
    let work = |tx: Transaction| async move {
        for past in pasts {
            past::set_created(&tx, &past.id, UnixMs(today - DAYS * DAY_MS)).await?;
        }
        let days = (today - DAYS * DAY_MS..today).step_by(DAY_MS as usize);
        let days: Vec<(&MonitorId, Summary)> = days
            .flat_map(|day| pasts.iter().map(move |past| (&past.id, past.summary(day, DAY_MS, PER_HOUR))))
            .collect();
        summaries::put(&tx, Span::Day, &days).await?;
        let hours = (results_from - HOURS * HOUR_MS..results_from).step_by(HOUR_MS as usize);
        let hours: Vec<(&MonitorId, Summary)> = hours
            .flat_map(|hour| pasts.iter().map(move |past| (&past.id, past.summary(hour, HOUR_MS, PER_HOUR))))
            .collect();
        summaries::put(&tx, Span::Hour, &hours).await?;
        Ok::<_, hob_database::Error>(())
    };
    database.write_with(Isolation::ReadCommitted, work).await?;
    summaries::start_at(database, Span::Hour, results_from).await?;
    summaries::start_at(database, Span::Day, today).await?;
    let times = || (results_from..now.0 - RESULT_EVERY_MS).step_by(RESULT_EVERY_MS as usize);
    let results: Vec<NewResult> = pasts.iter().flat_map(|past| times().map(|at| past.result(at))).collect();
    history::write(database, &results).await?;
    write_incidents(uptime, now).await?;
    for past in pasts {
        // The pages read monitors from the cache.
        uptime.monitor(&past.id).await?;
    }
    Ok(())
}

async fn write_incidents(uptime: &Uptime, now: UnixMs) -> Result<()> {
    let work = |tx: Transaction| async move {
        for (number, outage) in OUTAGES.iter().enumerate() {
            let range = outage.range(now);
            for name in outage.monitors {
                let Ok(monitor) = MonitorId::new(*name) else { continue };
                let id = format!("i{number:04x}{name}");
                let acknowledged = outage
                    .acknowledged_by
                    .map(|by| (by, UnixMs(range.start + (range.end - range.start) / 4)));
                let incident = PastIncident {
                    id: &id,
                    monitor: &monitor,
                    opened_at: UnixMs(range.start),
                    resolved_at: UnixMs(range.end),
                    class: outage.class,
                    message: outage.message,
                    failures: (outage.minutes * 2) as u32,
                    maintenance: false,
                    acknowledged,
                };
                past::insert_incident(&tx, &incident).await?;
                for (index, (author, text)) in (1..).zip(outage.notes) {
                    let written_at = UnixMs(
                        range.start + (range.end - range.start) * index / (outage.notes.len() as i64 + 1),
                    );
                    let note = Note { written_at, author: (*author).to_owned(), text: (*text).to_owned() };
                    incidents::insert_note(&tx, &id, &note).await?;
                }
                for (index, (status, text)) in (0..).zip(outage.updates) {
                    let last = outage.updates.len() as i64;
                    let written_at = UnixMs(range.start + (range.end - range.start) * (index + 1) / last);
                    let author = outage.acknowledged_by.unwrap_or("anna").to_owned();
                    let update = Update { written_at, author, status: *status, text: (*text).to_owned() };
                    updates::insert(&tx, &id, &update).await?;
                }
            }
        }
        Ok::<_, Error>(())
    };
    uptime.database().write(work).await
}
