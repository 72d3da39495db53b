//! The documentation of the subset, generated from the command table.

use std::fmt::Write;

use hob_commands::{Command, CommandId, FAMILIES, ServerCommand};

/// Known differences from Redis.
const DIFFERENCES: &[(&str, &str)] = &[
    ("Persistence", "None: no RDB, no AOF, no replication. All data is lost when the process ends."),
    ("Databases", "One. `SELECT 0` works, any other index is out of range."),
    (
        "Eviction",
        "None (`noeviction`): beyond `maxmemory`, commands that need memory return Redis's OOM error. \
         `used_memory` counts keys, values and tables; buffers of clients have their own limits.",
    ),
    (
        "Order",
        "`HGETALL`, `SMEMBERS`, `KEYS` and similar commands return another order. Redis does not define one either.",
    ),
    (
        "Cursors",
        "`SCAN`, `HSCAN`, `SSCAN` and `ZSCAN` always respect `COUNT`; Redis returns small collections whole.",
    ),
    ("Numbers", "Hexadecimal floats (`0x1p3`) are not supported."),
    (
        "Lua",
        "No `cjson`, `cmsgpack`, `struct`, `bit`, `coroutine`, `loadstring` and `rawset`; no `redis.setresp` and \
         `redis.breakpoint`. A script is stopped after 200 million instructions or 30 seconds, or when it needs \
         more than 256 MiB, and the oldest scripts are dropped from the cache when very many or very large ones are loaded.",
    ),
    (
        "Long scripts",
        "As in Redis, other commands return `BUSY` once a script has run for 5 seconds, and `SCRIPT KILL` ends it \
         unless it has written. There is no `SHUTDOWN`: stop the process with SIGTERM, which also ends a \
         script that has written. A single call of Lua's library that never returns, such as `string.find` with a \
         hostile pattern, cannot be interrupted; only a restart ends it. In-process calls wait until their deadline.",
    ),
    ("Limits", "An argument may have 64 MiB, a command 128 MiB (Redis: 512 MiB and 1 GiB)."),
    (
        "In process",
        "Commands that change the state of a connection (WATCH, MULTI, SUBSCRIBE, MONITOR, RESET) are refused on a \
         handle, because its clones share one connection. Use atomic pipelines and subscribers instead.",
    ),
    ("CONFIG", "Has only the parameters that apply here; `maxmemory` and `maxclients` can be set."),
    ("ACL", "One user, `default`, with one password."),
];

/// The subset and every known difference, as Markdown.
pub fn documentation() -> String {
    let mut page = String::from(
        "# The embedded store\n\n\
         <!-- Generated from the command table: `UPDATE_DOCS=1 cargo test -p hob-engine documentation`. -->\n\n\
         Hob runs on Redis or Valkey or, without either, on an embedded engine that supports the commands below with \
         the same replies as Redis 7, byte for byte. Every other command returns `ERR unknown command`. A \
         differential fuzzer compares it with a real redis-server.\n\n\
         The engine runs scripts and commands that are written for Redis on one machine, without persistence. It is \
         not a replacement for Redis.\n",
    );
    for family in FAMILIES {
        let title = family.title;
        let _ =
            write!(page, "\n## {title}\n\n| command | arguments with the name | flags |\n|---|---|---|\n");
        for command in family.commands.iter().filter(|command| !detects_http(command)) {
            row(&mut page, command);
        }
    }
    page += "\n## Known differences\n\n";
    for (subject, text) in DIFFERENCES {
        let _ = writeln!(page, "- **{subject}.** {text}");
    }
    page
}

/// Commands that are in the table only to detect HTTP.
fn detects_http(command: &Command) -> bool {
    matches!(command.id, CommandId::Server(ServerCommand::HttpPost | ServerCommand::HttpHost))
}

fn row(page: &mut String, command: &Command) {
    let name = command.name.to_ascii_uppercase().replace('|', " ");
    let arity = command.arity;
    let words = if arity < 0 { format!("{} or more", -arity) } else { arity.to_string() };
    let flags: Vec<&str> = command.flags.names().collect();
    let _ = writeln!(page, "| `{name}` | {words} | {} |", flags.join(" "));
}
