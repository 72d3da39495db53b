//! `INFO`, and the lines of `CLIENT LIST`.

use std::fmt::Write;

use super::Args;
use super::server::REDIS_VERSION;
use crate::engine::Core;
use crate::reply::{CommandResult, Reply};
use crate::session::Client;

pub(super) fn info(core: &mut Core, args: Args<'_>) -> CommandResult {
    let wanted: Vec<String> =
        args[1..].iter().map(|word| String::from_utf8_lossy(word).to_ascii_lowercase()).collect();
    let everything = wanted.is_empty()
        || wanted.iter().any(|word| matches!(word.as_str(), "all" | "default" | "everything"));
    let mut text = String::new();
    for (title, facts) in sections(core) {
        if !everything && !wanted.contains(&title.to_ascii_lowercase()) {
            continue;
        }
        if !text.is_empty() {
            text += "\r\n";
        }
        let _ = write!(text, "# {title}\r\n");
        for (name, value) in facts {
            let _ = write!(text, "{name}:{value}\r\n");
        }
    }
    Ok(Reply::Text(text))
}

type Section = (&'static str, Vec<(&'static str, String)>);

fn sections(core: &mut Core) -> Vec<Section> {
    let memory = core.memory();
    let peak = core.peak_memory();
    let uptime_s = core.now_us.saturating_sub(core.started_us) / 1_000_000;
    let subscribed = core.clients.connected.values().filter(|client| client.subscribed).count();
    let mut sections: Vec<Section> = vec![
        (
            "Server",
            vec![
                ("redis_version", REDIS_VERSION.into()),
                ("redis_mode", "standalone".into()),
                ("server_name", "hob-engine".into()),
                ("hob_engine_version", env!("CARGO_PKG_VERSION").into()),
                ("process_id", std::process::id().to_string()),
                ("server_time_usec", core.now_us.to_string()),
                ("uptime_in_seconds", uptime_s.to_string()),
            ],
        ),
        (
            "Clients",
            vec![
                ("connected_clients", core.clients.connected.len().to_string()),
                ("maxclients", core.settings.max_clients.to_string()),
                ("blocked_clients", core.blocked.len().to_string()),
                ("pubsub_clients", subscribed.to_string()),
            ],
        ),
        (
            "Memory",
            vec![
                ("used_memory", memory.to_string()),
                ("used_memory_peak", peak.to_string()),
                ("mem_clients_normal", core.hub.buffered_bytes().to_string()),
                ("maxmemory", core.settings.max_memory_bytes.to_string()),
                ("maxmemory_policy", "noeviction".into()),
            ],
        ),
        (
            "Stats",
            vec![
                ("total_connections_received", core.clients.accepted.to_string()),
                ("rejected_connections", core.clients.rejected.to_string()),
                ("total_commands_processed", core.commands.to_string()),
                ("expired_keys", core.keys.expired_keys.to_string()),
                ("pubsub_channels", core.hub.channels().count().to_string()),
                ("pubsub_patterns", core.hub.patterns().to_string()),
            ],
        ),
        ("Replication", vec![("role", "master".into()), ("connected_slaves", "0".into())]),
        ("Cluster", vec![("cluster_enabled", "0".into())]),
        ("Keyspace", vec![]),
    ];
    if core.keys.len() > 0 {
        let facts = format!("keys={},expires={},avg_ttl=0", core.keys.len(), core.keys.volatile());
        sections.last_mut().expect("the list above is not empty").1.push(("db0", facts));
    }
    sections
}

pub(super) fn client_line(id: u64, client: &Client, core: &Core) -> String {
    let seconds = |since_us: u64| core.now_us.saturating_sub(since_us) / 1_000_000;
    let flags = match (core.blocked.is_blocked(id), client.subscribed) {
        (true, true) => "Pb",
        (true, false) => "b",
        (false, true) => "P",
        (false, false) => "N",
    };
    format!(
        "id={id} addr={} laddr={} fd=-1 name={} age={} idle={} flags={flags} db=0 cmd={} user=default\n",
        client.address,
        client.local_address,
        client.name,
        seconds(client.since_us),
        seconds(client.active_us),
        client.last_command,
    )
}
