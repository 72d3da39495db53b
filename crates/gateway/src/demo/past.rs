//! The traffic of the last month: waves by day and week, and two incidents.

use std::f64::consts::TAU;
use std::ops::Range;

use hob_admission::EndpointId;
use hob_service::noise;

use super::{PAGES, SHARES};
use crate::traffic::counts::{Counts, EndpointCounts, Minute};
use crate::traffic::endpoints::Endpoints;
use crate::traffic::histogram::Bucket;
use crate::traffic::publisher::HOUR_MS;

const MINUTE_MS: u64 = 60_000;
const HOUR_MINUTES: u64 = 60;
/// Hours of the last day, of which response times are counted too, and of the days before.
const HOURS: u64 = 24;
const EARLIER_HOURS: u64 = 29 * 24;
/// Requests of an average minute, about as many as the bots send.
const PER_MINUTE: f64 = 1100.0;
/// Response times are counted by minute in the last two hours, and by this many minutes before.
const COARSE: u64 = 5;
/// Minutes ago in which the shop was overloaded.
const INCIDENTS: [Range<u64>; 2] = [9 * 60..9 * 60 + 14, 12 * 1440..12 * 1440 + 150];
/// The share of the usual requests on Saturday and Sunday.
const WEEKEND: f64 = 0.7;

/// Parts of the requests, and how many times the typical response time they took.
const SPREAD: [(f64, f64); 6] =
    [(0.25, 0.6), (0.35, 0.9), (0.22, 1.2), (0.13, 1.6), (0.04, 3.0), (0.01, 12.0)];

/// The typical response time of each of [`PAGES`] in microseconds, and its share of failures.
const BEHAVIOUR: [(f64, f64); 7] = [
    (2_600.0, 0.0),
    (8_800.0, 0.004),
    (4_700.0, 0.006),
    (15_900.0, 0.009),
    (41_000.0, 0.012),
    (26_000.0, 0.02),
    (1_400.0, 0.0),
];

/// The counts of each hour of the last day, and when they were flushed.
pub(super) fn day(endpoints: &Endpoints, now_ms: u64) -> Vec<(u64, Counts)> {
    let this_minute = now_ms / MINUTE_MS;
    let ids = ids(endpoints);
    let mut hours = Vec::new();
    for start in (first_hour(now_ms)..=now_ms).step_by(HOUR_MS as usize) {
        let mut counts = Counts::default();
        let minutes = start / MINUTE_MS..(start / MINUTE_MS + HOUR_MINUTES).min(this_minute + 1);
        for minute in minutes {
            let ago = this_minute - minute;
            // The bots continue in the middle of this minute.
            let length = (now_ms - minute * MINUTE_MS).min(MINUTE_MS) as f64 / MINUTE_MS as f64;
            for (page, id) in ids.iter().enumerate() {
                let counted = counts.endpoints.entry(*id).or_default();
                add_minutes(counted, page, minute, length, ago);
            }
        }
        if counts.requests() > 0 {
            hours.push((now_ms.min(start + HOUR_MS - 1), counts));
        }
    }
    hours
}

/// The counts of each hour before the last day, and when the hour began.
pub(super) fn earlier_days(endpoints: &Endpoints, now_ms: u64) -> Vec<(u64, Counts)> {
    let ids = ids(endpoints);
    let day = first_hour(now_ms);
    let starts = (1..=EARLIER_HOURS).rev().map(|hours| day - hours * HOUR_MS);
    starts
        .map(|start| {
            let mut counts = Counts::default();
            let minute = start / MINUTE_MS;
            for (page, id) in ids.iter().enumerate() {
                let counted = counts.endpoints.entry(*id).or_default();
                add_minutes(counted, page, minute, HOUR_MINUTES as f64, now_ms / MINUTE_MS - minute);
            }
            (start, counts)
        })
        .collect()
}

/// The start of the first hour of the last day.
fn first_hour(now_ms: u64) -> u64 {
    now_ms - now_ms % HOUR_MS - (HOURS - 1) * HOUR_MS
}

fn ids(endpoints: &Endpoints) -> Vec<EndpointId> {
    PAGES.iter().map(|(method, path, _)| endpoints.id(method, template(path))).collect()
}

/// The path under which requests to a page are counted.
fn template(path: &'static str) -> &'static str {
    match path {
        "/api/products/42" => "/api/products/:id",
        "/api/orders/7" => "/api/orders/:id",
        path => path,
    }
}

/// Counts the requests to a page in `length` minutes from this one, which was `ago` minutes ago.
fn add_minutes(counted: &mut EndpointCounts, page: usize, minute: u64, length: f64, ago: u64) {
    let chance = |number: u64| noise(minute * 64 + page as u64 * 8 + number);
    let hour_of_day = (minute % 1440) as f64 / 60.0;
    // Busiest in the afternoon.
    let wave = 1.0 + 0.35 * ((hour_of_day - 9.0) / 24.0 * TAU).sin();
    // The first day of 1970 was a Thursday.
    let week = if matches!(minute / 1440 % 7, 2 | 3) { WEEKEND } else { 1.0 };
    let incident = INCIDENTS.iter().any(|incident| incident.contains(&ago));
    let share = f64::from(PAGES[page].2) / f64::from(SHARES);
    let usual = PER_MINUTE * length * wave * week;
    let requests = (usual * share * (0.85 + 0.3 * chance(0))) as u64;
    let limited =
        if PAGES[page].1.starts_with("/api") { part(requests, 0.05 * chance(1), chance(2)) } else { 0 };
    let (typical_us, failing) = BEHAVIOUR[page];
    let failing = if incident && failing > 0.0 { 0.18 } else { failing };
    let failed = part(requests - limited, failing * (0.5 + chance(3)), chance(4));
    let answered = requests - limited;
    let not_found = if PAGES[page].1 == "/old-link" { answered } else { 0 };
    let totals = &mut counted.totals;
    totals.requests += requests;
    totals.refused += limited;
    totals.errors += limited + failed + not_found;
    totals.server_errors += failed;
    let status = if incident { 503 } else { 500 };
    for (status, count) in [(429, limited), (status, failed), (404, not_found)] {
        if count > 0 {
            *totals.statuses.entry(status).or_default() += count;
        }
    }
    let slow = if incident { 3.5 } else { 0.85 + 0.25 * wave + 0.2 * chance(5) };
    let counted_in = if ago > 120 { minute - minute % COARSE } else { minute };
    let mut left = answered;
    for (number, (share, factor)) in SPREAD.iter().enumerate() {
        let count =
            if number + 1 == SPREAD.len() { left } else { part(answered, *share, chance(6)).min(left) };
        left -= count;
        let took_us = (typical_us * factor * slow) as u64;
        totals.timed += count;
        totals.time_us += count * took_us;
        if count > 0 {
            let bucket = Bucket::of(took_us);
            *counted.buckets.entry((Minute::Past(counted_in), bucket)).or_default() += count;
        }
    }
}

/// A share of a number, rounded up as often as its fraction is large.
fn part(of: u64, share: f64, chance: f64) -> u64 {
    ((of as f64 * share + chance) as u64).min(of)
}
