//! Each kind of violation in each mode.

use super::*;

/// Commands that show by themselves that they break the schema, with the family and the violation.
const BEFORE: &[(&str, &str, &str)] = &[
    ("SET other:1 x", "undeclared", "undeclared-key"),
    ("RENAME count:9 other:1", "undeclared", "undeclared-key"),
    ("COPY count:9 other:1", "undeclared", "undeclared-key"),
    ("SORT tags:9 ALPHA STORE other:1", "undeclared", "undeclared-key"),
    ("XGROUP CREATE other:1 g $ MKSTREAM", "undeclared", "undeclared-key"),
    ("SETBIT other:1 7 1", "undeclared", "undeclared-key"),
    ("set queue:1 x", "shop.queue", "wrong-type"),
    ("LPUSH session:1 x", "shop.session", "wrong-type"),
    ("PFADD queue:1 x", "shop.queue", "wrong-type"),
    ("SUNIONSTORE board:1 tags:9", "shop.board", "wrong-type"),
    ("SET session:1 x EX 7200", "shop.session", "long-ttl"),
    ("SET session:1 x NX PX 7200000", "shop.session", "long-ttl"),
    ("SETEX session:1 7200 x", "shop.session", "long-ttl"),
    ("EXPIRE session:9 7200", "shop.session", "long-ttl"),
    ("EXPIREAT session:9 4102444800", "shop.session", "long-ttl"),
    ("GETEX session:9 EX 7200", "shop.session", "long-ttl"),
    ("SET count:1 5 EX 10", "shop.count", "unexpected-ttl"),
    ("PEXPIRE count:9 100000", "shop.count", "unexpected-ttl"),
    ("SET count:1 many", "shop.count", "misfit-value"),
    ("SET count:1 101", "shop.count", "misfit-value"),
    ("MSET count:1 1 count:2 x", "shop.count", "misfit-value"),
    ("GETSET count:1 x", "shop.count", "misfit-value"),
    ("SET session:1 aaaaaaaaaaaaaaaaaaaaaaaaa EX 10", "shop.session", "misfit-value"),
    ("HSET cart:1 owner 1 7 x", "shop.cart", "misfit-value"),
    ("LPUSH queue:1 x", "shop.queue", "misfit-value"),
    ("LINSERT queue:9 BEFORE x y", "shop.queue", "misfit-value"),
    ("SADD tags:1 a abcdef", "shop.tags", "misfit-value"),
    ("ZADD board:1 CH 1 a 1.5 b", "shop.board", "misfit-value"),
    ("XADD log:1 MAXLEN ~ 100 LIMIT 10 * event 1 other 2", "shop.log", "undeclared-field"),
    ("XADD log:1 * detail x", "shop.log", "missing-field"),
    ("RESTORE-ASKING other:1 0 x", "undeclared", "undeclared-key"),
];

/// Commands that match the schema, and commands that the proxy does not judge.
const FINE: &[&str] = &[
    "SET session:9 x EX 60",
    "SET session:9 x KEEPTTL",
    "EXPIRE session:9 3600",
    "INCR count:9",
    "SET blob:1 anything",
    "HSET cart:9 owner 1 7 2",
    "RPUSH queue:9 {\"id\":1}",
    "SADD tags:9 a b",
    "ZADD board:9 NX 1 a",
    "XADD log:9 * event 1",
    "DEL other:1 other:2",
    "GET other:1",
    "LPOP other:1",
    "EXPIRE other:1 7200",
    "EVAL return(1) 1 other:1",
    "PUBLISH other:1 x",
    "FLUSHDB",
];

#[tokio::test(flavor = "multi_thread")]
async fn violations_are_counted_in_every_mode_and_refused_when_enforced() {
    for mode in [Mode::Observe, Mode::Warn, Mode::Enforce] {
        let guarded = Guarded::start(mode).await;
        let totals = guarded.totals();
        let mut connection = guarded.connect().await;
        for command in FINE {
            let reply = connection.send(&[command]).await;
            assert!(!reply.starts_with('-'), "{command}: {reply}");
        }
        for (command, family, violation) in BEFORE {
            let before = violations(&totals, family, violation, "before");
            let reply = connection.send(&[command]).await;
            assert_eq!(violations(&totals, family, violation, "before"), before + 1, "{command}: {reply}");
            let refused = reply.starts_with(&format!("-SCHEMA {violation}: "));
            assert_eq!(refused, mode == Mode::Enforce, "{command}: {reply}");
            assert!(!refused || reply.lines().count() == 1, "{command}: {reply}");
        }
        let refused = metric(&totals, "hob_schema_proxy_refused_total ");
        let expected = if mode == Mode::Enforce { BEFORE.len() as u64 } else { 0 };
        assert_eq!(refused, expected, "{}", totals.report());
        if mode == Mode::Enforce {
            assert_eq!(guarded.redis.command::<u64>(&["EXISTS", "other:1", "queue:1", "count:1"]), 0);
        }
        guarded.proxy.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn effects_are_found_after_the_command() {
    for mode in [Mode::Observe, Mode::Enforce] {
        let guarded = Guarded::start(mode).await;
        let totals = guarded.totals();
        let mut connection = guarded.connect().await;
        let script = "EVAL redis.call('SET',KEYS[1],'x') 1";
        for (command, family, violation) in [
            ("SET session:2 x", "shop.session", "missing-ttl"),
            ("INCRBY count:3 101", "shop.count", "misfit-value"),
            ("RPUSH queue:2 {\"id\":1} {\"id\":1} {\"id\":1} {\"id\":1}", "shop.queue", "over-long"),
            ("HSET cart:2 7 1", "shop.cart", "missing-field"),
            (&format!("{script} other:5"), "undeclared", "undeclared-key"),
            (&format!("{script} tags:5"), "shop.tags", "wrong-type"),
        ] {
            let reply = connection.send(&[command]).await;
            assert!(!reply.starts_with("-SCHEMA"), "it cannot be known before: {command}: {reply}");
            wait_for_violation(&totals, family, violation).await;
        }
        guarded.redis.command::<()>(&["SET", "session:7", "x", "EX", "10"]);
        let before = violations(&totals, "shop.session", "missing-ttl", "after");
        connection.send(&["PERSIST session:7"]).await;
        wait_for("the lost TTL", LIMIT, async || {
            violations(&totals, "shop.session", "missing-ttl", "after") > before
        })
        .await;
        guarded.proxy.stop().await;
    }
}

/// Reading keys costs much more than forwarding a command.
#[tokio::test(flavor = "multi_thread")]
async fn key_is_not_read_if_every_result_matches() {
    let guarded = Guarded::start(Mode::Observe).await;
    let totals = guarded.totals();
    let mut connection = guarded.connect().await;
    connection.send(&["INCR total:1", "DECRBY total:2 7", "SET total:3 5", "INCR count:1"]).await;
    guarded.proxy.stop().await;
    assert_eq!(metric(&totals, "hob_schema_proxy_keys_checked_total "), 1, "only the counter with a range");
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_that_belong_together_are_judged_together() {
    let guarded = Guarded::start(Mode::Warn).await;
    let totals = guarded.totals();
    let mut connection = guarded.connect().await;
    for n in 0..100 {
        let (set, expire) = (format!("SET session:{n} x"), format!("EXPIRE session:{n} 60"));
        connection.send(&[&set, &expire]).await;
        let push = "RPUSH queue:1 {\"id\":1} {\"id\":1} {\"id\":1} {\"id\":1}";
        connection.send(&[push, "LTRIM queue:1 0 1", "HSET cart:1 7 1", "HSET cart:1 owner 1"]).await;
    }
    wait_for("all keys to be read", LIMIT, async || {
        metric(&totals, "hob_schema_proxy_keys_checked_total ") >= 102
    })
    .await;
    guarded.proxy.stop().await;
    assert!(totals.report().contains("all writes match the schemas"), "{}", totals.report());
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_a_command_must_share_a_slot_if_that_is_required() {
    let guarded = Guarded::start_with(|options| options.slots = Slots::One).await;
    let mut connection = guarded.connect().await;
    for command in ["MSET count:1 1 count:2 2", "DEL count:1 count:2", "EVAL return(1) 2 count:1 count:2"] {
        let reply = connection.send(&[command]).await;
        assert!(reply.starts_with("-SCHEMA cross-slot: \"count:2\""), "{command}: {reply}");
    }
    let replies = connection.send(&["MULTI", "SET count:1 1", "INCR count:2", "EXEC", "SET count:2 2"]).await;
    let replies: Vec<&str> = replies.lines().collect();
    assert_eq!(&replies[..2], ["+OK", "+QUEUED"]);
    assert!(
        replies[2].starts_with("-SCHEMA cross-slot:") && replies[3].starts_with("-EXECABORT"),
        "{replies:?}"
    );
    assert_eq!(replies[4], "+OK");
    guarded.proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strict_scripts_name_only_declared_keys() {
    let strict = UndeclaredScriptKeys::Always;
    let guarded = Guarded::start_with(|options| options.undeclared_script_keys = strict).await;
    let mut connection = guarded.connect().await;
    let replies = connection.send(&["EVAL return(1) 1 other:1", "EVAL return(1) 1 count:1 other:1"]).await;
    assert!(
        replies.starts_with("-SCHEMA undeclared-key: \"other:1\"") && replies.ends_with("\r\n:1\r\n"),
        "{replies}"
    );
    guarded.proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn report_names_client_and_command_but_no_value() {
    let guarded = Guarded::start(Mode::Observe).await;
    let totals = guarded.totals();
    let mut connection = guarded.connect().await;
    connection.send(&["CLIENT SETNAME worker-7", "SET count:1 hunter2"]).await;
    guarded.proxy.stop().await;
    let report = totals.report();
    assert!(
        report.contains("shop.count: misfit-value (1, 0 refused), first: set \"count:1\" from 127.0.0.1:"),
        "{report}"
    );
    assert!(report.contains(" worker-7: ") && !report.contains("hunter2"), "{report}");
}
