//! The documentation of the subset, generated from the command table.

use std::fmt::Write;

use hob_commands::{Command, CommandId, FAMILIES, ServerCommand};

/// Known differences from Redis.
const DIFFERENCES: &[(&str, &str)] = &[
    ("Persistence", "None: no RDB, no AOF, no replication. All data is lost when the process ends."),
    ("Databases", "Only database 0. `SELECT` with any other index is an error."),
    (
        "Eviction",
        "None (`noeviction`): above `maxmemory`, commands that need memory return Redis's OOM error. \
         `used_memory` counts keys, values and tables, and the messages that subscribers have not read yet \
         (`mem_clients_normal`); other client buffers have separate limits. An empty store counts 0 bytes.",
    ),
    (
        "Slow subscribers",
        "As in Redis (`client-output-buffer-limit pubsub 32mb 8mb 60`), a subscriber is disconnected when more than \
         32 MiB wait for it, or more than 8 MiB for 60 seconds; also when more than 4096 messages wait. The limits are \
         checked when a message is published, and they apply to clients of `MONITOR` as well. A subscriber in the same \
         process is not disconnected: it loses messages and learns how many.",
    ),
    (
        "Own messages",
        "A client that publishes to a channel it subscribes to gets the message before the reply, as in Redis 7.0. In a \
         transaction it gets it before the array of replies; Redis 7.0 writes it into the array.",
    ),
    (
        "Order",
        "`HGETALL`, `SMEMBERS`, `KEYS` and similar commands return elements in a different order than Redis, which \
         does not define the order either.",
    ),
    (
        "Cursors",
        "`SCAN`, `HSCAN`, `SSCAN` and `ZSCAN` always respect `COUNT`; Redis returns small collections whole.",
    ),
    ("Numbers", "Hexadecimal floats (`0x1p3`) are not supported."),
    (
        "Lua",
        "`coroutine`, `loadstring`, `rawset` and the debugger are not supported: `redis.breakpoint` and `redis.debug` do \
         nothing, as in Redis without `SCRIPT DEBUG`. A script is stopped after 200 million instructions or 30 seconds, or \
         when it needs more than 256 MiB. The script cache is bounded: when it is full, the oldest scripts are dropped.",
    ),
    (
        "Lua libraries",
        "`bit`, `cjson`, `cmsgpack` and `struct` are those of Redis, with lower limits: `cjson` and `cmsgpack` read and \
         write at most 1000 nested tables, even if a script sets more with `cjson.decode_max_depth` or \
         `cjson.encode_max_depth`, and `cmsgpack.unpack` and `struct.unpack` return at most 2000 values (Redis: about \
         8000).",
    ),
    (
        "Streams",
        "`XADD` and `XTRIM` with `~` remove exactly the surplus entries, at most `LIMIT`; Redis removes whole nodes. \
         `XINFO STREAM` estimates the size of Redis's radix tree.",
    ),
    (
        "Long scripts",
        "As in Redis, other commands return `BUSY` once a script has run for 5 seconds, and `SCRIPT KILL` stops it \
         unless it has written. There is no `SHUTDOWN`: stop the process with SIGTERM, which also stops a \
         script that has written. A single Lua library call that never returns, such as `string.find` with a \
         hostile pattern, cannot be interrupted; only a restart ends it. Scripts of clients do not occupy the threads \
         that serve Hob: Hob's own calls wait until their deadline and then fail as unavailable, and its timers go on.",
    ),
    (
        "Script memory",
        "Strings that Lua's library creates count as well (`string.rep`, `table.concat`…). A script that needs more than \
         its limit fails with the code `OOM`; it can catch the error with `pcall`.",
    ),
    (
        "Blocking commands",
        "A client waits for at most 10,000 keys, and at most `maxclients` commands wait, including those of handles in the \
         same process. A timeout that overflows Redis's clock, which Redis lets expire at once, is endless. A key that \
         replaces a value of another type (`ZUNIONSTORE`) serves blocked clients; in Redis 7.0 only a new \
         key does.",
    ),
    (
        "Keyspace notifications",
        "The classes `e` (evicted keys) and `d` (modules) have no events, since the engine supports neither. An expired key is \
         reported when it is read, or within a second or two: Redis samples keys, the engine visits all of them.",
    ),
    ("Limits", "An argument has at most 64 MiB, a command at most 128 MiB (Redis: 512 MiB and 1 GiB)."),
    (
        "In process",
        "In Rust, an engine handle refuses commands that change the state of a connection (`WATCH`, `MULTI`, \
         `SUBSCRIBE`, `MONITOR`, `RESET`), because its clones share one connection. Use atomic pipelines and \
         subscribers instead.",
    ),
    (
        "CONFIG",
        "Only the parameters that apply to the engine exist. `maxmemory`, `maxclients`, `busy-reply-threshold` and \
         `notify-keyspace-events` can be set, until the process ends.",
    ),
    (
        "Clients",
        "At most `maxclients` connections, 1000 by default (Redis: 10000): a further one gets `ERR max number of clients \
         reached` and is closed. `CLIENT LIST` has all fields of Redis, but `fd` is -1 and the sizes of buffers are 0. \
         There is no `CLIENT REPLY`, `PAUSE`, `TRACKING` or `NO-TOUCH`.",
    ),
    (
        "INFO",
        "`used_memory` is the engine's own count, `used_memory_rss` and the processor time are those of the whole process. \
         Sections about modules, latencies and persistence are short or missing, as are network counters.",
    ),
    (
        "COMMAND",
        "No `COMMAND DOCS` and no `HELP` of any command. `COMMAND INFO` has no tips and no key specifications.",
    ),
    (
        "OBJECT",
        "`OBJECT ENCODING` returns the encoding that Redis chooses for the value's content in its default configuration; \
         Redis keeps a larger encoding when a value becomes smaller. Idle times are not recorded, so there is no `OBJECT \
         IDLETIME`, and there is no `DUMP` or `RESTORE`.",
    ),
    (
        "MONITOR",
        "The database in a line is always 0, and the address of a command from the same process is `in-process`.",
    ),
    ("ACL", "One user, `default`, with one password."),
];

/// The subset and every known difference, as Markdown.
pub fn documentation() -> String {
    let mut page = String::from(
        "# The embedded engine\n\n\
         <!-- Generated from the command table: `UPDATE_DOCS=1 cargo test -p hob-engine documentation`. -->\n\n\
         If no Redis or Valkey is configured, Hob uses an embedded engine. It supports the commands below, with \
         replies that are byte for byte those of Redis 7 except for the differences at the end of this page. Every \
         other command returns `ERR unknown command`. A differential fuzzer compares the engine with a real \
         redis-server.\n\n\
         The engine is for one process on one machine, and it has no persistence. It is not a replacement for Redis.\n",
    );
    for family in FAMILIES {
        let title = family.title;
        let _ = write!(
            page,
            "\n## {title}\n\n| command | arguments, including the name | flags |\n|---|---|---|\n"
        );
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
