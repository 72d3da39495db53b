//! Random sequences of commands on streams. Ids are chosen here, because those of a server depend on its clock.

use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::Union;

use crate::generate::{Step, WRAPPERS, Words, class, damaged, template, texts};

/// As in `generate`: fixed words in capitals, classes of words in lower case, options after a bar.
const TEMPLATES: &[&str] = &[
    "XADD stream new_id field value",
    "XADD stream new_id field value",
    "XADD stream new_id field value",
    "XADD stream new_id field value field int",
    "XADD stream NOMKSTREAM new_id field value",
    "XADD stream MAXLEN count new_id field value",
    "XADD stream MAXLEN = count new_id field value",
    "XADD stream MAXLEN ~ 0 new_id field value",
    "XADD stream MAXLEN ~ 1000 LIMIT count new_id field value",
    "XADD stream MINID id new_id field value",
    "XADD stream MINID = id NOMKSTREAM new_id field value",
    "XADD stream LIMIT count new_id field value",
    "XADD stream MAXLEN count MINID id new_id field value",
    "XLEN stream",
    "XRANGE stream bound bound | COUNT index",
    "XRANGE stream - +",
    "XREVRANGE stream bound bound | COUNT index",
    "XREVRANGE stream + - COUNT count",
    "XREAD STREAMS stream id",
    "XREAD COUNT count STREAMS stream id",
    "XREAD STREAMS stream stream id id",
    "XREAD STREAMS stream $",
    "XREAD NOACK STREAMS stream id",
    "XREAD STREAMS stream >",
    "XDEL stream id",
    "XDEL stream id id id",
    "XTRIM stream MAXLEN count",
    "XTRIM stream MAXLEN ~ 0",
    "XTRIM stream MAXLEN ~ 1000",
    "XTRIM stream MINID id",
    "XTRIM stream MAXLEN = count LIMIT count",
    "XSETID stream id | ENTRIESADDED index|MAXDELETEDID id",
    "XGROUP CREATE stream group id | MKSTREAM|ENTRIESREAD index",
    "XGROUP CREATE stream group 0 MKSTREAM",
    "XGROUP CREATE stream group $ MKSTREAM",
    "XGROUP SETID stream group id | ENTRIESREAD index",
    "XGROUP SETID stream group 0",
    "XGROUP SETID stream group $",
    "XGROUP SETID stream group -",
    "XGROUP DESTROY stream group",
    "XGROUP CREATECONSUMER stream group consumer",
    "XGROUP DELCONSUMER stream group consumer",
    "XREADGROUP GROUP group consumer STREAMS stream >",
    "XREADGROUP GROUP group consumer STREAMS stream >",
    "XREADGROUP GROUP group consumer COUNT count STREAMS stream >",
    "XREADGROUP GROUP group consumer NOACK STREAMS stream >",
    "XREADGROUP GROUP group consumer STREAMS stream stream > >",
    "XREADGROUP GROUP group consumer STREAMS stream id",
    "XREADGROUP GROUP group consumer COUNT count NOACK STREAMS stream id",
    "XREADGROUP GROUP group consumer STREAMS stream $",
    "XREADGROUP COUNT 1 STREAMS stream stream > >",
    "XACK stream group id",
    "XACK stream group id id id",
    "XPENDING stream group",
    "XPENDING stream group bound bound count",
    "XPENDING stream group - + 10 consumer",
    "XPENDING stream group IDLE idle bound bound count",
    "XPENDING stream group IDLE idle - + 10 consumer",
    "XCLAIM stream group consumer idle id id | FORCE|JUSTID|IDLE idle|TIME at|RETRYCOUNT index|LASTID id",
    "XCLAIM stream group consumer 0 id id id | FORCE|JUSTID",
    "XAUTOCLAIM stream group consumer idle bound | COUNT count|JUSTID",
    "XAUTOCLAIM stream group consumer 0 0",
    "XINFO STREAM stream",
    "XINFO STREAM stream FULL",
    "XINFO STREAM stream FULL COUNT index",
    "XINFO GROUPS stream",
    "XINFO CONSUMERS stream group",
    "DEL stream",
    "TYPE stream",
    "RENAME stream stream",
    "SET stream value",
    "EXPIRE stream seconds",
    "MULTI",
    "EXEC",
    "EXEC",
    "DISCARD",
    "WATCH stream",
    "UNWATCH",
];

/// Commands that wait until they are served or unblocked.
const BLOCKING: &[&str] = &[
    "XREAD BLOCK 0 STREAMS stream $",
    "XREAD BLOCK 0 STREAMS stream stream $ id",
    "XREAD COUNT count BLOCK 0 STREAMS stream id",
    "XREAD BLOCK timeout STREAMS none $",
    "XREADGROUP GROUP group consumer BLOCK 0 STREAMS stream >",
    "XREADGROUP GROUP g alice BLOCK 0 STREAMS k1 >",
    "XREADGROUP GROUP g bob BLOCK 0 STREAMS k1 >",
    "XREADGROUP GROUP g alice BLOCK 0 NOACK STREAMS k1 >",
    "XREADGROUP GROUP g bob COUNT count BLOCK 0 STREAMS stream id",
    "BLPOP stream 0",
];

/// Commands that may serve a blocked client.
const SERVING: &[&str] = &[
    "XADD stream new_id field value",
    "XADD stream new_id field value",
    "XADD k1 new_id field value",
    "XADD stream MAXLEN 0 new_id field value",
    "XDEL stream id",
    "XGROUP DESTROY k1 g",
    "XGROUP CREATE k1 g $ MKSTREAM",
    "XGROUP SETID k1 g 0",
    "XTRIM stream MAXLEN 0",
    "DEL stream",
    "SET stream value",
    "RPUSH stream value",
    "RENAME stream stream",
    "FLUSHDB",
];

fn block() -> BoxedStrategy<Step> {
    let any_of = |templates: &[&'static str]| {
        Union::new(templates.iter().map(|text| template(text, stream_class)).collect::<Vec<_>>())
    };
    let waiters = prop::collection::vec(any_of(BLOCKING), 1..4);
    let writes = prop::collection::vec(any_of(SERVING), 1..5);
    (waiters, writes, any::<bool>(), any::<bool>())
        .prop_map(|(waiters, mut writes, atomic, create)| {
            let word = |word: &str| word.as_bytes().to_vec();
            if atomic {
                writes.insert(0, vec![word("MULTI")]);
                writes.push(vec![word("EXEC")]);
            }
            let begin = ["XGROUP", "CREATE", "k1", "g", "$", "MKSTREAM"].map(word).to_vec();
            Step::Block { begin: create.then_some(begin), waiters, writes }
        })
        .boxed()
}

fn stream_class(name: &str) -> Option<BoxedStrategy<Vec<u8>>> {
    let small_id = (0u8..9, 0u8..4).prop_map(|(ms, seq)| format!("{ms}-{seq}").into_bytes());
    Some(match name {
        "stream" => prop_oneof![8 => texts(&["k1"]), 4 => texts(&["k2"]), 1 => texts(&["l", "none"])].boxed(),
        "group" => prop_oneof![8 => texts(&["g"]), 2 => texts(&["h"]), 1 => texts(&["", "a\r\nb"])].boxed(),
        "consumer" => texts(&["alice", "bob", "c", ""]),
        "id" => prop_oneof![
            8 => small_id,
            2 => (0u8..9).prop_map(|ms| ms.to_string().into_bytes()),
            1 => texts(&[
                "18446744073709551615-18446744073709551615", "18446744073709551615", "1-18446744073709551615", "-", "+",
                "x", "", "1-", "01-01", " 1-1", "1-1-1", "1--05", "18446744073709551616", "1-*",
            ]),
        ]
        .boxed(),
        "new_id" => prop_oneof![
            8 => (1u8..40, 0u8..4).prop_map(|(ms, seq)| format!("{ms}-{seq}").into_bytes()),
            4 => (1u8..40).prop_map(|ms| format!("{ms}-*").into_bytes()),
            1 => (1u8..40).prop_map(|ms| ms.to_string().into_bytes()),
            1 => texts(&[
                "0-0", "0-*", "0-1", "0", "18446744073709551615-18446744073709551615", "18446744073709551615-*",
                "18446744073709551614-18446744073709551615", "x", "", "-", "1-x",
            ]),
        ]
        .boxed(),
        "bound" => prop_oneof![
            4 => small_id,
            2 => small_id_exclusive(),
            3 => texts(&["-", "+"]),
            1 => texts(&["5", "(5", "(", "(-", "(+", "x", "(0-0", "(18446744073709551615-18446744073709551615"]),
        ]
        .boxed(),
        "idle" => prop_oneof![3 => texts(&["0"]), 2 => texts(&["100000", "200000"]), 1 => texts(&["-1", "x"])].boxed(),
        "timeout" => texts(&["x", "-1", "9223372036854775807"]),
        "at" => texts(&["0", "1", "-1", "4000000000000", "x"]),
        name => return class(name),
    })
}

fn small_id_exclusive() -> impl Strategy<Value = Vec<u8>> {
    (0u8..9, 0u8..4).prop_map(|(ms, seq)| format!("({ms}-{seq}").into_bytes())
}

fn command() -> BoxedStrategy<Words> {
    let templates = TEMPLATES.iter().map(|text| template(text, stream_class)).collect::<Vec<_>>();
    // `*` would be an id that depends on the clock.
    damaged(Union::new(templates).boxed(), "?")
}

/// One sequence, and the protocol version.
pub(crate) fn sequence() -> BoxedStrategy<(&'static str, Vec<Step>)> {
    let script = (select(WRAPPERS), command()).prop_map(|(body, words)| {
        [vec![b"EVAL".to_vec(), body.as_bytes().to_vec(), b"0".to_vec()], words].concat()
    });
    let step = prop_oneof![
        20 => (0usize..2, command()).prop_map(|(client, words)| Step::Ask { client, words }),
        1 => block(),
        1 => select(&["", "KEA", "Etg"][..]).prop_map(|flags| Step::Notify { flags }),
        1 => script.prop_map(|words| Step::Ask { client: 0, words }),
    ];
    (select(&["2", "3"][..]), proptest::collection::vec(step, 1..40)).boxed()
}
