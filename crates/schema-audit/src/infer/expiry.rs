//! The TTLs that a proposal declares.

use std::time::Duration;

use hob_schema::format_duration;

use super::PatternStats;

/// TTLs that are commonly chosen.
const USUAL_TTLS_S: [u64; 18] = [
    1, 5, 10, 30, 60, 300, 600, 900, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400, 90_000, 172_800, 604_800,
    2_592_000,
];

/// Why keys without a TTL may not need one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    Unknown,
    OneKey,
    WithItsFields,
}

/// A TTL that is commonly chosen, or some days, at least as long.
pub(super) fn longest_ttl(ms: u64) -> String {
    let seconds = ms.div_ceil(1_000).max(1);
    let usual = USUAL_TTLS_S.into_iter().find(|usual| *usual >= seconds);
    format_duration(Duration::from_secs(usual.unwrap_or(seconds.next_multiple_of(86_400))))
}

/// The rule for the TTL of the keys of a pattern.
pub(super) fn ttl(stats: &PatternStats, ends: Ends) -> String {
    if stats.expiring == 0 {
        let why = match ends {
            Ends::Unknown => "TODO",
            Ends::OneKey => "one key, which did not expire when it was sampled",
            Ends::WithItsFields => "its fields expire",
        };
        return format!("{{ none = \"{why}\" }}");
    }
    let longest = longest_ttl(stats.longest_ttl_ms);
    if stats.expiring == stats.keys.len() as u64 {
        return format!("{{ max = \"{longest}\" }}");
    }
    format!("{{ late = \"{longest}\", why = \"TODO\" }}")
}
