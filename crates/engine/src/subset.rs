//! The page that says what the engine speaks, made from the command table.

use std::fmt::Write;

use crate::command::{FAMILIES, Flags, Run};

/// Where the engine is known to answer otherwise than Redis.
const DIFFERENCES: &[(&str, &str)] = &[
    ("Persistence", "None: no RDB, no AOF, no replication. What is in the store is gone with the process."),
    ("Databases", "One. `SELECT 0` works, any other index is out of range."),
    (
        "Eviction",
        "None (`noeviction`): beyond `maxmemory`, commands that need memory answer Redis's OOM error. \
         `used_memory` counts keys, values and tables; buffers of clients are bounded apart.",
    ),
    (
        "Order",
        "`HGETALL`, `SMEMBERS`, `KEYS` and their like answer in another order, which Redis leaves open too.",
    ),
    ("Cursors", "`SCAN` and its siblings always go by `COUNT`; Redis answers small collections whole."),
    ("Numbers", "Hexadecimal floats (`0x1p3`) are not read."),
    (
        "Lua",
        "No `cjson`, `cmsgpack`, `struct`, `bit`, `coroutine`, `loadstring` and `rawset`; no `redis.setresp` and \
         `redis.breakpoint`. A script is stopped after 200 million instructions or 30 seconds, or when it needs \
         more than 256 MiB, and the oldest scripts are forgotten when very many or very large ones are loaded.",
    ),
    (
        "Long scripts",
        "As in Redis, other commands are answered with `BUSY` once a script has run for 5 seconds, and `SCRIPT KILL` \
         ends it unless it has written. There is no `SHUTDOWN`: stop the process with SIGTERM, which also ends a \
         script that has written. A single call of Lua's library that never returns, such as `string.find` with a \
         hostile pattern, cannot be interrupted; only a restart ends it. Calls in process wait until their deadline.",
    ),
    ("Limits", "A word of a command may have 64 MiB, a command 128 MiB (Redis: 512 MiB and 1 GiB)."),
    (
        "In process",
        "Commands that leave something on a connection (WATCH, MULTI, SUBSCRIBE, MONITOR, RESET) are refused on \
         a handle, whose clones share it. Atomic pipelines and subscribers take their place.",
    ),
    ("CONFIG", "Knows the parameters that apply here; `maxmemory` and `maxclients` can be set."),
    ("ACL", "One user, `default`, with one password."),
];

/// The subset and every known difference, as Markdown.
pub fn documentation() -> String {
    let mut page = String::from(
        "# The embedded store\n\n\
         <!-- Made from the command table: `UPDATE_DOCS=1 cargo test -p hob-engine documentation`. -->\n\n\
         Hob runs its store on Redis or, with nothing installed, on an engine of its own that speaks the \
         commands below with Redis 7's replies to the byte. Everything else answers `ERR unknown command`. A \
         differential fuzzer holds it to a real redis-server.\n\n\
         It is a host for scripts and commands that are written for Redis, on one machine, without a disk. It \
         is no replacement for Redis.\n",
    );
    for (family, commands) in FAMILIES {
        let _ = write!(page, "\n## {family}\n\n| command | words | flags |\n|---|---|---|\n");
        for command in commands.iter().filter(|command| !is_trap(command.name)) {
            match command.run {
                Run::Container(subcommands) => {
                    for sub in subcommands {
                        row(&mut page, &format!("{} {}", command.name, sub.name), sub.arity, sub.flags);
                    }
                }
                _ => row(&mut page, command.name, command.arity, command.flags),
            }
        }
    }
    page += "\n## Known differences\n\n";
    for (subject, text) in DIFFERENCES {
        let _ = writeln!(page, "- **{subject}.** {text}");
    }
    page
}

/// Names that are in the table only so that HTTP is recognised.
fn is_trap(name: &str) -> bool {
    matches!(name, "post" | "host:")
}

fn row(page: &mut String, name: &str, arity: i32, flags: Flags) {
    let words = if arity < 0 { format!("{} or more", -arity) } else { arity.to_string() };
    let flags: Vec<&str> = flags.names().collect();
    let _ = writeln!(page, "| `{}` | {words} | {} |", name.to_ascii_uppercase(), flags.join(" "));
}
