//! Random sequences over the whole subset.

mod templates;

use proptest::prelude::*;
use proptest::sample::select;

pub(crate) use templates::WRAPPERS;
use templates::{BLOCKING, SCRIPTS, SERVING, TEMPLATES};

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
        "small" => prop_oneof![
            6 => number(0..40),
            1 => texts(&["-1", "x", "4294967296", "9223372036854775807"]),
        ]
        .boxed(),
        "bit" => prop_oneof![6 => texts(&["0", "1"]), 1 => texts(&["2", "-1", "x"])].boxed(),
        "operation" => texts(&["AND", "or", "XOR", "NOT", "NAND"]),
        "count" => prop_oneof![4 => number(0..5), 1 => texts(&["-1", "x", "1000000", "9223372036854775808"])].boxed(),
        "end" => prop_oneof![6 => texts(&["LEFT", "RIGHT", "left"]), 1 => texts(&["UP", ""])].boxed(),
        // A separate key: ranges of members are only defined while all scores are equal.
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
        // Not `*`: keyspace notifications have a separate subscriber.
        words("PSUBSCRIBE [no]* news*"),
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
