//! Random sequences over the whole subset.

use proptest::prelude::*;
use proptest::sample::select;

pub(crate) type Words = Vec<Vec<u8>>;

/// A step that runs on both servers.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A command over one of the ordinary connections.
    Ask { client: usize, words: Words },
    /// A command that sets a very short TTL, and a wait until it has expired.
    Expire { words: Words },
    /// A complete iteration with SCAN, HSCAN, SSCAN or ZSCAN.
    Walk { words: Words },
    /// SPOP of one member. Only the type of the reply is compared, and the set is deleted afterwards.
    PopAny { key: Vec<u8> },
    /// A command over the subscriber's connection.
    Listen { words: Words },
    /// Blocking commands, each over its own connection, and commands of another client that may serve them.
    Block { begin: Option<Words>, waiters: Vec<Words>, writes: Vec<Words> },
    /// Sets `notify-keyspace-events`.
    Notify { flags: &'static str },
    /// Commands over a connection that subscribes inside its transactions.
    Mix { commands: Vec<Words> },
}

pub(crate) const KEYS: [&str; 9] = ["k1", "k2", "k3", "key:{a}:4", "l", "z", "l2", "l3", "z2"];
pub(crate) const CHANNELS: [&str; 4] = ["news", "news.1", "other", ""];

/// Each line is a command: fixed words in capitals, a class of words in lower case, and after a bar any of
/// the options.
const TEMPLATES: &[&str] = &[
    "DEL key key",
    "UNLINK key",
    "EXISTS key key key",
    "TYPE key",
    "EXPIRE key seconds | NX|XX|GT|LT",
    "PEXPIRE key millis | NX|XX|GT|LT",
    "EXPIREAT key at_seconds | NX|XX|GT|LT",
    "PEXPIREAT key at_millis | NX|XX|GT|LT",
    "TTL key",
    "PTTL key",
    "EXPIRETIME key",
    "PEXPIRETIME key",
    "PERSIST key",
    "KEYS pattern",
    "RENAME key key",
    "RENAMENX key key",
    "COPY key key | REPLACE|DB 0|DB 99",
    "TOUCH key key",
    "RANDOMKEY",
    "MEMORY USAGE key",
    "FLUSHDB",
    "GET key",
    "SET key value | NX|XX|GET|KEEPTTL|EX seconds|PX millis|EXAT at_seconds|PXAT at_millis",
    "SET key int",
    "SETNX key value",
    "SETEX key seconds value",
    "PSETEX key millis value",
    "GETSET key value",
    "GETDEL key",
    "GETEX key | PERSIST|EX seconds|PX millis|EXAT at_seconds|PXAT at_millis",
    "MGET key key key",
    "MSET key value key int",
    "MSETNX key value key int",
    "SETRANGE key index value",
    "APPEND key value",
    "STRLEN key",
    "GETRANGE key index index",
    "INCR key",
    "DECR key",
    "INCRBY key int",
    "DECRBY key int",
    "INCRBYFLOAT key float",
    "HSET key field value field int",
    "HMSET key field value",
    "HGET key field",
    "HMGET key field field",
    "HGETALL key",
    "HDEL key field field",
    "HEXISTS key field",
    "HLEN key",
    "HSTRLEN key field",
    "HRANDFIELD key",
    "HRANDFIELD key index | WITHVALUES",
    "HKEYS key",
    "HVALS key",
    "HSETNX key field value",
    "HINCRBY key field int",
    "HINCRBYFLOAT key field float",
    "LPUSH key value value",
    "RPUSH key value value int",
    "LPUSHX key value",
    "RPUSHX key value",
    "LPOP key",
    "RPOP key",
    "LPOP key count",
    "RPOP key count",
    "LRANGE key index index",
    "LTRIM key index index",
    "LLEN key",
    "LINDEX key index",
    "LSET key index value",
    "LREM key index value",
    "LMOVE key key end end",
    "RPOPLPUSH key key",
    "LMPOP 2 key key end | COUNT count",
    "LMPOP count key key end",
    "LPOS key value | RANK index|COUNT count|MAXLEN count",
    "LINSERT key BEFORE value value",
    "LINSERT key after value value",
    "SADD key field field value",
    "SREM key field field",
    "SMEMBERS key",
    "SISMEMBER key field",
    "SMISMEMBER key field field",
    "SCARD key",
    "SPOP key 1000",
    "SPOP key 0",
    "SRANDMEMBER key",
    "SRANDMEMBER key index",
    "SINTER key key",
    "SUNION key key key",
    "SDIFF key key",
    "SINTERSTORE key key key",
    "SUNIONSTORE key key key",
    "SDIFFSTORE key key key",
    "SINTERCARD 2 key key | LIMIT count",
    "SINTERCARD count key key",
    "SMOVE key key field",
    "ZADD key float field float field",
    "ZADD key int field int field int field",
    "ZADD key NX float field",
    "ZADD key XX CH float field float field",
    "ZADD key GT CH float field",
    "ZADD key LT float field float field",
    "ZADD key INCR float field",
    "ZADD key XX INCR float field",
    "ZREM key field field",
    "ZSCORE key field",
    "ZMSCORE key field field",
    "ZINCRBY key float field",
    "ZCARD key",
    "ZCOUNT key bound bound",
    "ZRANGE key index index | REV|WITHSCORES",
    "ZRANGE key bound bound BYSCORE | REV|WITHSCORES|LIMIT index index",
    "ZRANGEBYSCORE key bound bound | WITHSCORES|LIMIT index index",
    "ZREVRANGEBYSCORE key bound bound | WITHSCORES|LIMIT index index",
    "ZREVRANGE key index index | WITHSCORES",
    "ZADD lex_key 0 member 0 member 0 member",
    "ZRANGE lex_key lex lex BYLEX | REV|WITHSCORES|LIMIT index index",
    "ZRANGEBYLEX lex_key lex lex | LIMIT index index|WITHSCORES",
    "ZREVRANGEBYLEX lex_key lex lex | LIMIT index index",
    "ZLEXCOUNT lex_key lex lex",
    "ZREMRANGEBYLEX lex_key lex lex",
    "ZRANGESTORE key key index index | REV|WITHSCORES",
    "ZRANGESTORE key key bound bound BYSCORE | REV|LIMIT index index",
    "ZRANK key field",
    "ZREVRANK key field",
    "ZREMRANGEBYRANK key index index",
    "ZREMRANGEBYSCORE key bound bound",
    "ZPOPMIN key",
    "ZPOPMAX key",
    "ZPOPMIN key count",
    "ZPOPMAX key count",
    "ZMPOP 2 key key MIN | COUNT count",
    "ZMPOP count key key MAX",
    "ZUNIONSTORE key 2 key key | WEIGHTS float int|AGGREGATE MIN|AGGREGATE MAX|AGGREGATE SUM",
    "ZINTERSTORE key 2 key key | WEIGHTS int float|AGGREGATE MIN|AGGREGATE max|WITHSCORES",
    "ZDIFFSTORE key 2 key key",
    "ZUNION 2 key key | WITHSCORES|WEIGHTS int int|AGGREGATE MIN",
    "ZUNION count key key",
    "ZINTER 2 key key | WITHSCORES|AGGREGATE MAX",
    "ZDIFF 2 key key | WITHSCORES|AGGREGATE MAX",
    "ZINTERCARD 2 key key | LIMIT count",
    "ZRANDMEMBER key",
    "ZRANDMEMBER key index | WITHSCORES",
    "WAIT 0 0",
    "PUBLISH channel value",
    "PUBSUB NUMSUB channel channel",
    "PUBSUB NUMPAT",
    "PUBSUB CHANNELS",
    "MULTI",
    "MULTI",
    "EXEC",
    "EXEC",
    "EXEC",
    "DISCARD",
    "WATCH key key",
    "UNWATCH",
    "PING",
    "PING value",
    "ECHO value",
    "SELECT 0",
    "TIME",
];

/// Commands that may block.
const BLOCKING: &[&str] = &[
    "BLPOP list list timeout",
    "BLPOP key timeout",
    "BRPOP list timeout",
    "BLMOVE list list end end timeout",
    "BLMOVE list key LEFT LEFT timeout",
    "BRPOPLPUSH list list timeout",
    "BLMPOP timeout 2 list list end",
    "BLMPOP timeout 1 list LEFT COUNT count",
    "BZPOPMIN zset zset timeout",
    "BZPOPMAX zset timeout",
    "BZMPOP timeout 2 zset zset MIN",
    "BZMPOP timeout 1 zset MAX COUNT count",
];

/// Commands that may serve a blocked client.
const SERVING: &[&str] = &[
    "RPUSH list value",
    "RPUSH list value value value",
    "LPUSH list value value",
    "LPOP list",
    "LMOVE list list end end",
    "RENAME key list",
    "COPY key list REPLACE",
    "RENAME list list",
    "SET list value",
    "DEL list zset",
    "DEL list",
    "SADD list field",
    "ZADD zset int field",
    "ZADD zset int field int field int field",
    "ZADD list int field",
    "ZUNIONSTORE zset 2 zset key",
    "RPUSH zset value",
    "ZREM zset field",
    "EVAL redis.call('RPUSH',KEYS[1],'a');redis.call('DEL',KEYS[1]);return(redis.call('RPUSH',KEYS[1],'b','c')) 1 list",
    "EVAL redis.call('RPUSH',KEYS[1],'a');return(redis.call('LPOP',KEYS[1])) 1 list",
];

/// Lua scripts that run the command in ARGV.
pub(crate) const WRAPPERS: &[&str] = &[
    "return redis.call(unpack(ARGV))",
    "return redis.pcall(unpack(ARGV))",
    "local ok, e = pcall(redis.call, unpack(ARGV)) return {tostring(ok), type(e)}",
    "local r = redis.call(unpack(ARGV)) if type(r) == 'table' and r.ok then return r.ok end return r",
    "local a = redis.pcall(unpack(ARGV)) local b = redis.call('EXISTS', 'k1') return b",
];

/// Lua scripts whose replies show the type conversions.
const SCRIPTS: &[&str] = &[
    "return tonumber(ARGV[1])",
    "return {tonumber(ARGV[1]), ARGV[1], false, true}",
    "return {1, {2, {3, ARGV[1]}}, nil, 4}",
    "redis.call('SET', 'k1', tonumber(ARGV[1]) or 7) return redis.call('GET', 'k1')",
    "redis.call('SET', 'k2', (tonumber(ARGV[1]) or 1) / 3) return redis.call('GET', 'k2')",
    "return redis.status_reply(ARGV[1])",
    "return redis.error_reply(ARGV[1])",
    "return {err = ARGV[1]}",
    "return {ok = ARGV[1]}",
    "return ARGV[1] .. 1",
    "return string.format('%.0f', tonumber(ARGV[1]) or 0)",
    "error(ARGV[1])",
    "return undefined_name",
    "undefined_name = 1",
    "return redis.sha1hex(ARGV[1])",
    "for i = 1, 20 do redis.call('ZADD', 'z', i, 'm' .. i) end return redis.call('ZRANGE', 'z', 0, -1, 'WITHSCORES')",
    "return redis.call('HGETALL', KEYS[1] or 'k1')",
    "return #KEYS + #ARGV",
];

pub(crate) fn texts(words: &'static [&'static str]) -> BoxedStrategy<Vec<u8>> {
    select(words).prop_map(|word| word.as_bytes().to_vec()).boxed()
}

pub(crate) fn class(name: &str) -> Option<BoxedStrategy<Vec<u8>>> {
    let number = |range: std::ops::Range<i64>| range.prop_map(|value| value.to_string().into_bytes());
    Some(match name {
        "key" => texts(&KEYS),
        "list" => texts(&["l", "l2", "l3"]),
        "zset" => texts(&["z", "z2"]),
        "timeout" => prop_oneof![
            8 => texts(&["0", "1000", "0.0", "100.25"]),
            1 => texts(&["-1", "x", "", "inf", "-inf", "nan", "1e400", "9223372036854775807", "-0.0001"]),
        ]
        .boxed(),
        "field" => texts(&["a", "b", "c", "d", "e", "1", "10", ""]),
        "value" => prop_oneof![
            texts(&["", "a", "hello world", "10", "-3", "3.5", "007", "\r\n", "9223372036854775807"]),
            proptest::collection::vec(any::<u8>(), 0..12),
        ]
        .boxed(),
        "int" => prop_oneof![
            4 => number(-20..20),
            1 => any::<i64>().prop_map(|value| value.to_string().into_bytes()),
            1 => texts(&["9223372036854775807", "-9223372036854775808", "1.5", "x", "", " 1", "+1", "01", "-0"]),
        ]
        .boxed(),
        "float" => prop_oneof![
            3 => (-1000i64..1000, 0u32..6)
                .prop_map(|(digits, places)| (digits as f64 / 10f64.powi(places as i32)).to_string().into_bytes()),
            2 => number(-20..20),
            1 => any::<f64>().prop_map(|value| format!("{value:e}").into_bytes()),
            1 => (any::<i64>(), -30i32..30).prop_map(|(value, power)| format!("{value}e{power}").into_bytes()),
            1 => texts(&[
                "inf", "-inf", "+inf", "nan", "1e400", "1e-400", "1e5", "0.1", "-0", "x", "", "1.", ".5", "1e17",
                "123456789012345678", "1e308", "4.9e-324", "3.0e3", " 1", "1 ", "Infinity",
            ]),
        ]
        .boxed(),
        "bound" => prop_oneof![
            2 => number(-20..20),
            1 => number(-20..20).prop_map(|mut value| { value.insert(0, b'('); value }),
            1 => texts(&["-inf", "+inf", "(inf", "0.1", "(0.1", "x", "", "(", "nan", "1e400"]),
        ]
        .boxed(),
        "index" => prop_oneof![
            6 => number(-8..8),
            1 => texts(&["x", "", "9223372036854775807", "-9223372036854775808", "1000", "-1000"]),
        ]
        .boxed(),
        "count" => prop_oneof![4 => number(0..5), 1 => texts(&["-1", "x", "1000000", "9223372036854775808"])].boxed(),
        "end" => prop_oneof![6 => texts(&["LEFT", "RIGHT", "left"]), 1 => texts(&["UP", ""])].boxed(),
        // A key of its own: ranges of members are only defined while all scores are equal.
        "lex_key" => texts(&["lex"]),
        "member" => texts(&["", "a", "aa", "ab", "b", "ba", "c", "\u{ff}"]),
        "lex" => prop_oneof![
            6 => texts(&["-", "+", "[a", "(a", "[aa", "(aa", "[b", "(b", "[c", "(c"]),
            1 => texts(&["[", "(", "", "a", "--", "+a", "inf"]),
        ]
        .boxed(),
        "seconds" => prop_oneof![
            4 => number(100..10_000),
            1 => texts(&["0", "-1", "x", "9223372036854775807", "-9223372036854775808", "99999999999999999"]),
        ]
        .boxed(),
        "millis" => prop_oneof![
            4 => number(100_000..10_000_000),
            1 => texts(&["0", "-1", "x", "9223372036854775807", "-9223372036854775808"]),
        ]
        .boxed(),
        "at_seconds" => prop_oneof![
            4 => number(4_000_000_000..4_000_001_000),
            1 => texts(&["0", "-1", "1", "x", "9223372036854775807", "9223372036854775"]),
        ]
        .boxed(),
        "at_millis" => prop_oneof![
            4 => number(4_000_000_000_000..4_000_001_000_000),
            1 => texts(&["0", "-1", "1", "x", "9223372036854775807"]),
        ]
        .boxed(),
        "pattern" => texts(&["*", "k?", "k[1-2]", "k[^1]", "*{a}*", "\\k1", "x*", "", "[", "k[", "?"]),
        "channel" => texts(&CHANNELS),
        _ => return None,
    })
}

/// The words of one part of a template, each generated from its class.
fn words(text: &str) -> BoxedStrategy<Words> {
    words_of(text, class)
}

/// Generates the words of a class; `None` if the name is not that of a class.
type ClassFn = fn(&str) -> Option<BoxedStrategy<Vec<u8>>>;

fn words_of(text: &str, class: ClassFn) -> BoxedStrategy<Words> {
    let one = |word: &str| class(word).unwrap_or_else(|| Just(word.as_bytes().to_vec()).boxed());
    text.split_whitespace().map(one).collect::<Vec<_>>().boxed()
}

pub(crate) fn template(text: &'static str, class: ClassFn) -> BoxedStrategy<Words> {
    let (fixed, options) = text.split_once(" | ").unwrap_or((text, ""));
    let options = options.split('|').filter(|option| !option.is_empty());
    let options: Vec<_> = options.map(|option| words_of(option, class)).collect();
    let chosen = if options.is_empty() {
        Just(Vec::new()).boxed()
    } else {
        proptest::collection::vec(proptest::strategy::Union::new(options), 0..3).boxed()
    };
    (words_of(fixed, class), chosen)
        .prop_map(|(fixed, options)| [vec![fixed], options].concat().concat())
        .boxed()
}

/// Sometimes removes or adds a word, or replaces one with `odd`.
pub(crate) fn damaged(command: BoxedStrategy<Words>, odd: &'static str) -> BoxedStrategy<Words> {
    (command, 0u8..40, any::<prop::sample::Index>())
        .prop_map(|(mut words, damage, at)| {
            match damage {
                0 => words.truncate(1),
                1 => drop(words.pop()),
                2 => words.push(b"extra".to_vec()),
                3 => {
                    let at = at.index(words.len());
                    words[at] = odd.as_bytes().to_vec();
                }
                4 => words[0].make_ascii_lowercase(),
                _ => {}
            }
            // A random member would make the two stores differ; `Step::PopAny` covers it.
            if words.len() == 2 && words[0].eq_ignore_ascii_case(b"SPOP") {
                words.push(b"1000".to_vec());
            }
            if words.is_empty() { vec![b"PING".to_vec()] } else { words }
        })
        .boxed()
}

fn command() -> BoxedStrategy<Words> {
    let templates = TEMPLATES.iter().map(|text| template(text, class)).collect::<Vec<_>>();
    damaged(proptest::strategy::Union::new(templates).boxed(), "*")
}

fn script() -> BoxedStrategy<Words> {
    let head = |body: &str| vec![b"EVAL".to_vec(), body.as_bytes().to_vec(), b"0".to_vec()];
    prop_oneof![
        3 => (select(WRAPPERS), command()).prop_map(move |(body, words)| [head(body), words].concat()),
        1 => (select(SCRIPTS), class("float").expect("a class"))
            .prop_map(move |(body, word)| [head(body), vec![word]].concat()),
    ]
    .boxed()
}

fn short_lived() -> BoxedStrategy<Words> {
    prop_oneof![
        words("PEXPIRE key 1"),
        words("SET key value PX 1"),
        words("PSETEX key 1 value"),
        words("GETEX key PX 1"),
        words("EXPIREAT key 1"),
        words("SET key value EXAT 1"),
    ]
    .boxed()
}

fn walk() -> BoxedStrategy<Words> {
    let tail = prop_oneof![
        Just(Words::new()).boxed(),
        words("COUNT 1"),
        words("COUNT 3 MATCH pattern"),
        words("MATCH *"),
    ];
    let head = prop_oneof![
        words("SCAN"),
        words("SCAN").prop_map(|words| words),
        words("HSCAN key"),
        words("SSCAN key"),
        words("ZSCAN key"),
    ];
    (head, tail).prop_map(|(head, tail)| [head, vec![b"0".to_vec()], tail].concat()).boxed()
}

fn listen() -> BoxedStrategy<Words> {
    prop_oneof![
        words("SUBSCRIBE channel"),
        words("SUBSCRIBE channel channel"),
        words("PSUBSCRIBE news*"),
        words("PSUBSCRIBE * news*"),
        words("UNSUBSCRIBE channel"),
        words("UNSUBSCRIBE"),
        words("PUNSUBSCRIBE news*"),
        words("PUNSUBSCRIBE"),
        words("PING"),
        words("PING value"),
        words("GET key"),
    ]
    .boxed()
}

/// Nothing is published: when a connection gets its own message inside a transaction depends on the version of Redis.
fn mix() -> BoxedStrategy<Vec<Words>> {
    let one = prop_oneof![
        3 => words("MULTI"),
        3 => words("EXEC"),
        1 => words("DISCARD"),
        3 => words("SUBSCRIBE channel"),
        1 => words("SUBSCRIBE channel channel"),
        1 => words("PSUBSCRIBE news*"),
        2 => words("UNSUBSCRIBE channel"),
        1 => words("PUNSUBSCRIBE news*"),
        1 => words("PING"),
        1 => words("PING value"),
        1 => words("PING value value"),
        2 => words("SET key value"),
        2 => words("INCR key"),
        2 => words("GET key"),
        1 => words("ECHO value"),
        1 => words("WATCH key"),
        1 => words("NOPE value"),
        1 => words("RESET"),
        1 => words("BLPOP key 0.001"),
        1 => words("BZMPOP 0.001 1 key MIN"),
        1 => words("BLMOVE key key LEFT RIGHT 0.001"),
        1 => words("EVAL return(redis.call('INCR',KEYS[1])) 1 key"),
    ];
    proptest::collection::vec(one, 1..12).boxed()
}

fn any_of(templates: &'static [&'static str]) -> BoxedStrategy<Words> {
    proptest::strategy::Union::new(templates.iter().map(|text| template(text, class)).collect::<Vec<_>>())
        .boxed()
}

fn block() -> BoxedStrategy<Step> {
    let waiters = proptest::collection::vec(any_of(BLOCKING), 1..4);
    let writes = proptest::collection::vec(any_of(SERVING), 1..5);
    let word = |word: &str| vec![word.as_bytes().to_vec()];
    let begin = words("DEL l l2 l3 z z2");
    (waiters, writes, any::<bool>(), 0u8..4, begin)
        .prop_map(move |(waiters, mut writes, atomic, keep, begin)| {
            if atomic {
                writes.insert(0, word("MULTI"));
                writes.push(word("EXEC"));
            }
            let begin = if keep == 0 { None } else { Some(begin) };
            Step::Block { begin, waiters, writes }
        })
        .boxed()
}

fn step() -> BoxedStrategy<Step> {
    prop_oneof![
        60 => (0usize..2, command()).prop_map(|(client, words)| Step::Ask { client, words }),
        10 => (0usize..2, script()).prop_map(|(client, words)| Step::Ask { client, words }),
        1 => short_lived().prop_map(|words| Step::Expire { words }),
        4 => walk().prop_map(|words| Step::Walk { words }),
        1 => class("key").expect("a class").prop_map(|key| Step::PopAny { key }),
        4 => listen().prop_map(|words| Step::Listen { words }),
        2 => mix().prop_map(|commands| Step::Mix { commands }),
        2 => block(),
        2 => select(&["", "KEA", "KEAnm", "Eg$", "Klz", "nK", "E"][..]).prop_map(|flags| Step::Notify { flags }),
    ]
    .boxed()
}

/// Calls of the libraries of Lua.
pub(crate) fn library_calls() -> BoxedStrategy<(&'static str, Vec<Step>)> {
    let call = crate::libraries::command().prop_map(|words| Step::Ask { client: 0, words });
    (Just("2"), proptest::collection::vec(call, 1..12)).boxed()
}

/// One sequence, and the protocol version.
pub(crate) fn sequence() -> BoxedStrategy<(&'static str, Vec<Step>)> {
    (select(&["2", "3"][..]), proptest::collection::vec(step(), 1..40)).boxed()
}
