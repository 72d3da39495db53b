//! `INFO`.

use std::fmt::Write;

use super::Args;
use super::process::{cpu_seconds, resident_bytes, system_bytes};
use super::server::REDIS_VERSION;
use crate::engine::Core;
use crate::reply::{CommandResult, Reply};

type Facts = Vec<(String, String)>;
type ReadFacts = fn(&Core) -> Facts;

/// The sections in Redis's order. Without a name, or with `default`, those that can be long are left out.
const SECTIONS: [(&str, Shown, ReadFacts); 12] = [
    ("Server", Shown::ByDefault, server),
    ("Clients", Shown::ByDefault, clients),
    ("Memory", Shown::ByDefault, memory),
    ("Persistence", Shown::ByDefault, persistence),
    ("Stats", Shown::ByDefault, stats),
    ("Replication", Shown::ByDefault, replication),
    ("CPU", Shown::ByDefault, cpu),
    ("Modules", Shown::ByDefault, |_| vec![]),
    ("Commandstats", Shown::OnRequest, command_stats),
    ("Errorstats", Shown::ByDefault, error_stats),
    ("Cluster", Shown::ByDefault, |_| facts([("cluster_enabled", "0".into())])),
    ("Keyspace", Shown::ByDefault, keyspace),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    ByDefault,
    OnRequest,
}

pub(super) fn info(core: &mut Core, args: Args<'_>) -> CommandResult {
    let wanted: Vec<String> =
        args[1..].iter().map(|word| String::from_utf8_lossy(word).to_ascii_lowercase()).collect();
    let asks_for = |names: &[&str]| wanted.iter().any(|word| names.contains(&word.as_str()));
    let default = wanted.is_empty() || asks_for(&["default"]);
    let everything = asks_for(&["all", "everything"]);
    let mut text = String::new();
    for (title, shown, facts) in SECTIONS {
        let selected = everything
            || (default && shown == Shown::ByDefault)
            || wanted.contains(&title.to_ascii_lowercase());
        if !selected {
            continue;
        }
        if !text.is_empty() {
            text += "\r\n";
        }
        let _ = write!(text, "# {title}\r\n");
        for (name, value) in facts(core) {
            let _ = write!(text, "{name}:{value}\r\n");
        }
    }
    Ok(Reply::Text(text))
}

fn facts<const N: usize>(facts: [(&str, String); N]) -> Facts {
    facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn server(core: &Core) -> Facts {
    let uptime_s = core.now_us.saturating_sub(core.started_us) / 1_000_000;
    facts([
        ("redis_version", REDIS_VERSION.into()),
        ("redis_mode", "standalone".into()),
        ("server_name", "hob-engine".into()),
        ("hob_engine_version", env!("CARGO_PKG_VERSION").into()),
        ("os", std::env::consts::OS.into()),
        ("arch_bits", usize::BITS.to_string()),
        ("process_id", std::process::id().to_string()),
        ("run_id", core.run_id.clone()),
        ("server_time_usec", core.now_us.to_string()),
        ("uptime_in_seconds", uptime_s.to_string()),
        ("uptime_in_days", (uptime_s / 86_400).to_string()),
    ])
}

fn clients(core: &Core) -> Facts {
    let subscribed = core.clients.connected.values().filter(|client| client.is_subscribed()).count();
    facts([
        ("connected_clients", core.clients.connected.len().to_string()),
        ("maxclients", core.settings.max_clients.to_string()),
        ("blocked_clients", core.blocked.len().to_string()),
        ("pubsub_clients", subscribed.to_string()),
    ])
}

fn memory(core: &Core) -> Facts {
    let (used, peak) = (core.memory(), core.peak_memory());
    let limit = core.settings.max_memory_bytes;
    let mut all = facts([
        ("used_memory", used.to_string()),
        ("used_memory_human", human(used as u64)),
        ("used_memory_peak", peak.to_string()),
        ("used_memory_peak_human", human(peak as u64)),
        ("used_memory_dataset", core.keys.memory().to_string()),
        ("mem_clients_normal", core.hub.buffered_bytes().to_string()),
        ("maxmemory", limit.to_string()),
        ("maxmemory_human", human(limit as u64)),
        ("maxmemory_policy", "noeviction".into()),
    ]);
    if let Some(resident) = resident_bytes() {
        all.extend(facts([
            ("used_memory_rss", resident.to_string()),
            ("used_memory_rss_human", human(resident)),
            ("mem_fragmentation_ratio", format!("{:.2}", resident as f64 / used.max(1) as f64)),
        ]));
    }
    if let Some(total) = system_bytes() {
        all.extend(facts([
            ("total_system_memory", total.to_string()),
            ("total_system_memory_human", human(total)),
        ]));
    }
    all
}

/// A size as Redis prints it for people.
fn human(bytes: u64) -> String {
    let units = ["K", "M", "G", "T", "P"];
    let mut size = bytes as f64;
    let mut unit = None;
    for name in units {
        if size < 1024.0 {
            break;
        }
        size /= 1024.0;
        unit = Some(name);
    }
    unit.map_or_else(|| format!("{bytes}B"), |unit| format!("{size:.2}{unit}"))
}

/// Nothing is stored, so nothing is being loaded or saved. Monitoring tools ask for these fields.
fn persistence(_: &Core) -> Facts {
    let nothing =
        ["loading", "async_loading", "rdb_bgsave_in_progress", "aof_enabled", "aof_rewrite_in_progress"];
    nothing.into_iter().map(|name| (name.to_owned(), "0".to_owned())).collect()
}

fn stats(core: &Core) -> Facts {
    facts([
        ("total_connections_received", core.clients.accepted.to_string()),
        ("total_commands_processed", core.commands.to_string()),
        ("instantaneous_ops_per_sec", core.stats.rate.per_second().to_string()),
        ("rejected_connections", core.clients.rejected.to_string()),
        ("expired_keys", core.keys.expired_keys.to_string()),
        // Nothing is evicted.
        ("evicted_keys", "0".into()),
        ("evicted_clients", "0".into()),
        ("keyspace_hits", core.keys.lookups.hits.to_string()),
        ("keyspace_misses", core.keys.lookups.misses.to_string()),
        ("pubsub_channels", core.hub.channels().count().to_string()),
        ("pubsub_patterns", core.hub.patterns().to_string()),
        ("total_error_replies", core.stats.error_replies.to_string()),
    ])
}

fn replication(_: &Core) -> Facts {
    facts([("role", "master".into()), ("connected_slaves", "0".into())])
}

fn cpu(_: &Core) -> Facts {
    let Some((user, system)) = cpu_seconds() else {
        return vec![];
    };
    facts([("used_cpu_sys", format!("{system:.6}")), ("used_cpu_user", format!("{user:.6}"))])
}

fn command_stats(core: &Core) -> Facts {
    let line = |(name, stats): (&str, crate::engine::CommandStats)| {
        let usec = stats.time_us;
        let per_call = usec as f64 / stats.calls.max(1) as f64;
        let value = format!(
            "calls={},usec={usec},usec_per_call={per_call:.2},rejected_calls={},failed_calls={}",
            stats.calls, stats.rejected, stats.failed
        );
        (format!("cmdstat_{name}"), value)
    };
    core.stats.commands().map(line).collect()
}

fn error_stats(core: &Core) -> Facts {
    core.stats.errors().map(|(code, count)| (format!("errorstat_{code}"), format!("count={count}"))).collect()
}

fn keyspace(core: &Core) -> Facts {
    if core.keys.len() == 0 {
        return vec![];
    }
    let counts = format!("keys={},expires={},avg_ttl=0", core.keys.len(), core.keys.volatile());
    facts([("db0", counts)])
}

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn sizes_are_printed_as_in_redis() {
        assert_eq!(human(0), "0B");
        assert_eq!(human(1023), "1023B");
        assert_eq!(human(1024), "1.00K");
        assert_eq!(human(1_141_312), "1.09M");
        assert_eq!(human(25_276_530_688), "23.54G");
    }
}
