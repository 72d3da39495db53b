//! What the server says about itself and its scripts, compared with a real redis-server.

use hob_testkit::RedisServer;

use crate::pair::EngineServer;
use crate::wire::{Frame, Wire};

/// One connection to each server.
struct Both {
    redis: (RedisServer, Wire),
    engine: (EngineServer, Wire),
}

impl Both {
    fn start(protocol: &str) -> Both {
        let (redis, engine) = (RedisServer::start(), EngineServer::start());
        let [redis_wire, engine_wire] = [redis.port(), engine.port()].map(|port| connect(port, protocol));
        Both { redis: (redis, redis_wire), engine: (engine, engine_wire) }
    }

    #[track_caller]
    fn agree(&mut self, words: &[&str]) -> Frame {
        let (redis, engine) = (self.redis.1.ask(words), self.engine.1.ask(words));
        assert_eq!(engine, redis, "{words:?}");
        redis
    }
}

fn connect(port: u16, protocol: &str) -> Wire {
    let mut wire = Wire::connect(port);
    wire.ask(&["HELLO", protocol]);
    wire
}

#[test]
fn scripts_may_use_the_whole_redis_table() {
    for protocol in ["2", "3"] {
        let mut both = Both::start(protocol);
        both.agree(&["HSET", "h", "f", "v"]);
        both.agree(&["SADD", "s", "m"]);
        both.agree(&["ZADD", "z", "1.5", "m"]);
        for script in [
            "return redis.replicate_commands()",
            "return {redis.REDIS_VERSION, redis.REDIS_VERSION_NUM}",
            "return {redis.REPL_ALL, redis.REPL_AOF, redis.REPL_SLAVE, redis.REPL_REPLICA, redis.REPL_NONE}",
            "return {redis.LOG_DEBUG, redis.LOG_VERBOSE, redis.LOG_NOTICE, redis.LOG_WARNING}",
            "return redis.set_repl(redis.REPL_ALL)",
            "return redis.set_repl()",
            "return redis.set_repl(9)",
            "return redis.breakpoint()",
            "return redis.debug('x')",
            "return redis.sha1hex()",
            "return redis.sha1hex('a', 'b')",
            "return redis.sha1hex(12)",
            "return redis.log(1)",
            "return redis.log('x', 'text')",
            "return redis.log(9, 'text')",
            "return redis.log(redis.LOG_DEBUG, 'one', 'two')",
            "return pcall(redis.sha1hex)",
            "return redis.acl_check_cmd('GET', 'k')",
            "return redis.acl_check_cmd('NOPE')",
            "return redis.setresp()",
            "return redis.setresp(4)",
            "redis.setresp(3) return redis.call('HGETALL', 'h').map.f",
            "redis.setresp(3) return redis.call('HGETALL', 'h')",
            "redis.setresp(3) return redis.call('SMEMBERS', 's')",
            "redis.setresp(3) return redis.call('ZSCORE', 'z', 'm').double",
            "redis.setresp(3) return redis.call('ZSCORE', 'z', 'm')",
            "redis.setresp(3) return redis.call('ZRANGE', 'z', 0, -1, 'WITHSCORES')",
            "redis.setresp(3) return redis.call('GET', 'none') == nil",
            "redis.setresp(3) return {true, false}",
            "redis.setresp(3) redis.setresp(2) return redis.call('GET', 'none') == false",
            "return redis.call('GET', 'none') == false",
            "return {map = {a = 1}}",
            "return {set = {a = true}}",
            "return {double = 1.5}",
            "return {big_number = '123\\r\\n456'}",
            "return {verbatim_string = {format = 'txt', string = 'hello'}}",
            "return {verbatim_string = {format = 'toolong', string = 'hello'}}",
            "return {verbatim_string = 'x'}",
        ] {
            both.agree(&["EVAL", script, "0"]);
        }
    }
}

#[test]
fn flags_in_the_first_line_of_a_script_match_redis() {
    let mut both = Both::start("2");
    for script in [
        "#!lua\nreturn 1",
        "#!lua name=x\nreturn 1",
        "#!lua flags=\nreturn 1",
        "#!lua flags=no-writes\nreturn redis.call('SET', 'k', 'v')",
        "#!lua flags=no-writes\nreturn redis.call('GET', 'k')",
        "#!lua flags=no-writes,allow-oom , allow-stale\nreturn 1",
        "#!lua flags=allow-oom,no-cluster,allow-cross-slot-keys\nreturn redis.call('SET', 'k', 'v')",
        "#!lua flags=nope\nreturn 1",
        "#!lua flags=no-writes flags=nope\nreturn 1",
        "#!lua",
        "#!python\nreturn 1",
        "#!\nreturn 1",
        "#!lua \"x\nreturn 1",
        "#!lua\nreturn nope",
        "#!lua\n\nerror('third line')",
    ] {
        both.agree(&["EVAL", script, "0"]);
        both.agree(&["SCRIPT", "LOAD", script]);
    }
    both.agree(&["EVAL_RO", "return redis.call('SET', KEYS[1], 'v')", "1", "k"]);
    both.agree(&["EVAL_RO", "return redis.call('GET', KEYS[1])", "1", "k"]);
    both.agree(&["EVALSHA_RO", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "0"]);
    both.agree(&["EVALSHA_RO", "e0e1f9fabfc9d4800c877a703b823ac0578ff8dc", "0"]);
}

/// Flags of a script decide whether it runs in a full store.
#[test]
fn scripts_in_a_full_store_match_redis() {
    let mut both = Both::start("2");
    both.agree(&["SET", "k", "v"]);
    both.agree(&["CONFIG", "SET", "maxmemory", "1"]);
    for script in [
        "return redis.call('GET', 'k')",
        "return redis.call('SET', 'k', 'w')",
        "return redis.pcall('SET', 'k', 'w')",
        "#!lua\nreturn redis.call('GET', 'k')",
        "#!lua flags=no-writes\nreturn redis.call('GET', 'k')",
        "#!lua flags=allow-oom\nreturn redis.call('SET', 'k', 'x')",
    ] {
        both.agree(&["EVAL", script, "0"]);
    }
}

#[test]
fn transactions_in_a_full_store_match_redis() {
    let mut both = Both::start("2");
    let full = ["CONFIG", "SET", "maxmemory", "1"];
    let empty = ["CONFIG", "SET", "maxmemory", "0"];
    both.agree(&["SET", "k", "v"]);
    // A command that is refused while it is queued aborts the transaction, even if there is memory again.
    both.agree(&full);
    for words in [&["MULTI"][..], &["GET", "k"], &["SET", "k", "w"], &["EXEC"], &["GET", "k"]] {
        both.agree(words);
    }
    for words in [&["MULTI"][..], &["GET", "k"], &["DISCARD"]] {
        both.agree(words);
    }
    // The store becomes full after the commands were queued.
    both.agree(&empty);
    both.agree(&["MULTI"]);
    both.agree(&["SET", "k", "w"]);
    let [mut redis, mut engine] = [both.redis.0.port(), both.engine.0.port()].map(|port| connect(port, "2"));
    redis.ask(&full);
    engine.ask(&full);
    both.agree(&["EXEC"]);
    both.agree(&["GET", "k"]);
    both.agree(&["EXEC"]);
}

/// The flags, positions of keys and ACL categories of every command. Redis 7.0 has no `CLIENT SETINFO`.
#[test]
fn commands_are_described_as_in_redis() {
    for protocol in ["2", "3"] {
        let mut both = Both::start(protocol);
        let commands = hob_commands::FAMILIES.iter().flat_map(|family| family.commands);
        let names = commands.map(|command| command.name);
        let known = names.filter(|name| !matches!(*name, "client|setinfo" | "post" | "host:"));
        for name in known.chain(["config", "client", "memory", "nope", "config|nope"]) {
            let words = ["COMMAND", "INFO", name];
            let [redis, engine] =
                [&mut both.redis.1, &mut both.engine.1].map(|wire| match wire.ask(&words).items() {
                    [described] if !described.items().is_empty() => described.items()[..7].to_vec(),
                    other => other.to_vec(),
                });
            assert_eq!(engine, redis, "{name}");
        }
    }
}

#[test]
fn keys_of_a_command_are_found_as_in_redis() {
    let mut both = Both::start("2");
    for line in [
        "GETKEYS GET a",
        "GETKEYS MSET a 1 b 2",
        "GETKEYS EVAL script 2 a b c",
        "GETKEYS EVAL script 0 a",
        "GETKEYS MEMORY USAGE a",
        "GETKEYS PING",
        "GETKEYS PING x",
        "GETKEYS NOPE x",
        "GETKEYS GET a b",
        "GETKEYS",
        "LIST x",
        "LIST FILTERBY X y",
        "LIST FILTERBY MODULE x",
        "LIST FILTERBY ACLCAT nope",
        "COUNT x",
        "NOPE",
    ] {
        let words: Vec<&str> = ["COMMAND"].into_iter().chain(line.split(' ')).collect();
        both.agree(&words);
    }
    let mut sorted = |words: &[&str]| {
        [&mut both.redis.1, &mut both.engine.1].map(|wire| {
            let mut names = wire.ask(words).items().to_vec();
            names.sort();
            names
        })
    };
    let [redis, engine] = sorted(&["COMMAND", "LIST", "FILTERBY", "ACLCAT", "transaction"]);
    assert_eq!(engine, redis);
}

#[test]
fn objects_are_described_as_in_redis() {
    let mut both = Both::start("2");
    let long = "x".repeat(100);
    for words in [
        &["SET", "int", "12"][..],
        &["SET", "big", "123456"],
        &["SET", "short", "abc"],
        &["SET", "long", &long],
        &["HSET", "hash", "f", "v"],
        &["HSET", "hashtable", "f", &long],
        &["RPUSH", "list", "a"],
        &["SADD", "intset", "1", "2"],
        &["SADD", "set", "1", "a"],
        &["ZADD", "zset", "1", "a"],
        &["ZADD", "skiplist", "1", &long],
    ] {
        both.agree(words);
    }
    let keys = "int big short long hash hashtable list intset set zset skiplist none";
    for key in keys.split(' ') {
        both.agree(&["OBJECT", "ENCODING", key]);
        both.agree(&["OBJECT", "REFCOUNT", key]);
        both.agree(&["OBJECT", "FREQ", key]);
    }
    both.agree(&["OBJECT", "ENCODING"]);
}

/// MONITOR shows the commands of scripts and transactions, when they run.
#[test]
fn monitor_shows_what_redis_shows() {
    let mut both = Both::start("2");
    let [mut redis, mut engine] = [both.redis.0.port(), both.engine.0.port()].map(|port| {
        let mut monitor = connect(port, "2");
        monitor.ask(&["MONITOR"]);
        monitor
    });
    for words in [
        &["SET", "k", "a\"b'\n\u{1}"][..],
        &["MULTI"],
        &["INCR", "n"],
        &["EVAL", "return redis.call('GET', KEYS[1])", "1", "k"],
        &["EXEC"],
        &["MULTI"],
        &["INCR", "n"],
        &["DISCARD"],
        &["GET"],
        &["LPUSH", "k", "wrong type"],
        &["EVAL", "redis.call('SET', 'x', 1) return redis.call('AUTH', 'x')", "0"],
        &["CONFIG", "GET", "maxmemory"],
        &["AUTH", "default", "secret"],
        &["PING", "end"],
    ] {
        both.agree(words);
    }
    let lines = |monitor: &mut Wire| -> Vec<String> {
        let mut lines = Vec::new();
        while lines.last().is_none_or(|line: &String| !line.ends_with("\"end\"")) {
            let Frame::Line(line) = monitor.read() else { panic!("MONITOR sends lines") };
            // Without the time and the client's address.
            let (address, command) = line.split_once(" [0 ").unwrap().1.split_once("] ").unwrap();
            let address = if address == "lua" { "lua" } else { "client" };
            lines.push(format!("{address} {command}"));
        }
        lines
    };
    assert_eq!(lines(&mut engine), lines(&mut redis));
}

/// All fields of a line of `CLIENT LIST`. Redis 7.0 has no names of libraries.
#[test]
fn clients_are_described_with_the_fields_of_redis() {
    let mut both = Both::start("3");
    both.agree(&["SUBSCRIBE", "a", "b"]);
    let [redis, engine] = [&mut both.redis.1, &mut both.engine.1].map(|wire| {
        wire.read();
        wire.ask(&["PSUBSCRIBE", "p*"]);
        wire.ask(&["CLIENT", "SETNAME", "test"]);
        wire.ask(&["MULTI"]);
        wire.ask(&["CLIENT", "INFO"]);
        let reply = wire.ask(&["EXEC"]);
        let [Frame::Bulk(text)] = reply.items() else { panic!("{reply:?}") };
        let text = String::from_utf8(text.clone()).unwrap();
        let fields = text.trim_end().trim_start_matches("txt:").split(' ');
        fields
            .map(|field| field.split_once('=').unwrap())
            .map(|(n, v)| (n.to_owned(), v.to_owned()))
            .collect::<Vec<_>>()
    });
    let names = |fields: &[(String, String)]| -> Vec<String> {
        fields.iter().map(|(name, _)| name.clone()).filter(|name| !name.starts_with("lib-")).collect()
    };
    assert_eq!(names(&engine), names(&redis));
    for name in ["name", "flags", "db", "sub", "psub", "ssub", "cmd", "user", "redir", "resp", "multi"] {
        let value = |fields: &[(String, String)]| fields.iter().find(|(field, _)| field == name).cloned();
        assert_eq!(value(&engine), value(&redis));
    }
    for line in ["LIST ID x", "LIST ID", "LIST TYPE nope", "LIST TYPE master", "LIST ID 123456", "LIST nope"]
    {
        let words: Vec<&str> = ["CLIENT"].into_iter().chain(line.split(' ')).collect();
        both.agree(&words);
    }
    for line in ["ID 0", "ID x", "USER nope", "TYPE nope", "LADDR 1.2.3.4:5", "ADDR x", "SKIPME x", "ID", "x"]
    {
        let words: Vec<&str> = ["CLIENT", "KILL"].into_iter().chain(line.split(' ')).collect();
        both.agree(&words);
    }
    both.agree(&["CLIENT", "NO-EVICT", "maybe"]);
    both.agree(&["CLIENT", "NO-EVICT", "on"]);
}

/// A client of RESP3 that publishes to its own channel gets the message before the reply. (Redis 7.2 sends it after.)
#[test]
fn own_message_is_ordered_as_in_redis() {
    let mut both = Both::start("3");
    both.agree(&["SUBSCRIBE", "c"]);
    for words in [&["PUBLISH", "c", "one"][..], &["EVAL", "return redis.call('PUBLISH', 'c', 'two')", "0"]] {
        let first = both.agree(words);
        assert_eq!(first.items().len(), 3, "the message comes before the reply");
        let [redis, engine] = [both.redis.1.read(), both.engine.1.read()];
        assert_eq!(engine, redis, "{words:?}");
    }
    both.agree(&["PING"]);
}

#[test]
fn parameters_are_set_and_refused_as_in_redis() {
    let mut both = Both::start("2");
    for line in [
        "SET maxmemory 1gb",
        "GET maxmemory",
        "SET maxmemory 10x",
        "SET maxmemory 1 maxmemory 2",
        "SET maxmemory 0 maxclients 500",
        "SET maxclients 10x",
        "SET maxclients 0",
        "GET maxclients",
        "SET databases 3",
        "SET maxmemory 100 databases 3",
        "SET maxmemory 0 nope 3",
        "GET maxmemory",
        "SET maxmemory-policy noeviction",
        "SET appendonly no",
        "SET busy-reply-threshold 1234",
        "GET lua-time-limit",
        "SET lua-time-limit x",
        "SET lua-time-limit -1",
        "SET maxmemory",
        "RESETSTAT",
    ] {
        let words: Vec<&str> = ["CONFIG"].into_iter().chain(line.split(' ')).collect();
        both.agree(&words);
    }
}
