//! Sequences that the fuzzer found, each as a named test.

use hob_testkit::RedisServer;

use crate::generate::Step;
use crate::pair::{EngineServer, Pair};

/// Runs the commands of one connection on both servers in both protocols, from its first command to its last.
fn both_agree_on_a_connection(lines: &[&str]) {
    let (redis, engine) = (RedisServer::start(), EngineServer::start());
    let words = |line: &&str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    let steps = [Step::Mix { commands: lines.iter().map(words).collect() }];
    for protocol in ["2", "3"] {
        Pair::connect(redis.port(), engine.port(), protocol).play(&steps).unwrap();
    }
}

/// Runs commands, one per line, on both servers in both protocols. `\0` is a NUL, `''` an empty argument.
fn both_agree(lines: &[&str]) {
    let (redis, engine) = (RedisServer::start(), EngineServer::start());
    let word = |word: &str| match word {
        "''" => Vec::new(),
        word => word.replace("\\0", "\0").into_bytes(),
    };
    let steps: Vec<Step> = lines
        .iter()
        .map(|line| {
            let words: Vec<Vec<u8>> = line.split(' ').map(word).collect();
            match words[0].as_slice() {
                b"HSCAN" | b"SSCAN" | b"ZSCAN" | b"SCAN" => Step::Walk { words },
                b"SUBSCRIBE" | b"PSUBSCRIBE" => Step::Listen { words },
                _ => Step::Ask { client: 0, words },
            }
        })
        .collect();
    for protocol in ["2", "3"] {
        Pair::connect(redis.port(), engine.port(), protocol).play(&steps).unwrap();
    }
}

/// Runs scripts on both servers.
fn both_agree_on_scripts(scripts: &[&str]) {
    let (redis, engine) = (RedisServer::start(), EngineServer::start());
    let words = |script: &&str| vec![b"EVAL".to_vec(), script.as_bytes().to_vec(), b"0".to_vec()];
    let steps: Vec<Step> =
        scripts.iter().map(|script| Step::Ask { client: 0, words: words(script) }).collect();
    Pair::connect(redis.port(), engine.port(), "2").play(&steps).unwrap();
}

#[test]
fn libraries_fail_with_the_errors_of_redis() {
    both_agree_on_scripts(&[
        "return cjson.encode(tostring)",
        "return cjson.encode({[true] = 1})",
        "return cjson.encode({[100] = 1})",
        "return cjson.encode(0/0)",
        "return cjson.encode()",
        "return cjson.decode()",
        "return cjson.decode({})",
        "return cjson.decode('[1,')",
        "local t = {} t.t = t return cjson.encode(t)",
        "return cjson.decode(string.rep('[', 1001))",
        "return #cjson.decode(string.rep('[', 1000) .. string.rep(']', 1000))",
        "local t = {} for i = 1, 999 do t = {t} end return cjson.encode(t)",
        "return cjson.encode_max_depth(0)",
        "return cjson.encode_max_depth(1, 2)",
        "return cjson.encode_invalid_numbers('maybe')",
        "return cjson.encode_keep_buffer({})",
        "return cmsgpack.pack()",
        "return cmsgpack.unpack('\\193')",
        "return cmsgpack.unpack('\\129\\192\\1')",
        "return cmsgpack.unpack_one('abc', 5)",
        "return cmsgpack.unpack_limit('abc', -1)",
        "return cmsgpack.unpack(string.rep('a', 9000))",
        "return cmsgpack.unpack_limit('abc')",
        "return bit.band()",
        "return bit.bor(1, 'x', {})",
        "return bit:tobit(1)",
        "return struct.pack('z')",
        "return struct.pack('i', 'x')",
        "return struct.pack('c5', 'abc')",
        "return struct.unpack('c0', 'abc')",
        "return struct.unpack('i', 'abc')",
        "return struct.unpack('b', 'abc', 0)",
        "return struct.unpack('s', 'abc')",
        "return struct.size('s')",
        "local ok, e = pcall(cjson.decode, '{') return e",
        "local function f() return cjson.decode('{') end local ok, e = pcall(f) return e",
        "return {type(cjson.null), tostring(cjson.null), tostring(cjson.decode('null') == cjson.null)}",
        "error(cjson.null)",
    ]);
}

#[test]
fn protected_call_returns_as_many_values_as_the_function() {
    both_agree_on_scripts(&[
        "return select('#', pcall(function() end))",
        "return select('#', pcall(cmsgpack.unpack, ''))",
        "return select('#', xpcall(function() return nil, nil end, function() end))",
    ]);
}

#[test]
fn struct_reads_integers_of_any_size_as_redis() {
    both_agree_on_scripts(&[
        "return struct.unpack('i9', string.rep('\\0', 7) .. '\\1\\0')",
        "return struct.unpack('i16', string.rep('\\127', 16))",
        "return struct.unpack('i3', '\\255\\255\\255')",
        "return {struct.unpack('i0', '')}",
        "return struct.pack('i12', -2)",
        "return struct.pack('L', 2^64)",
        "return struct.pack('i')",
    ]);
}

#[test]
fn libraries_are_read_only() {
    both_agree_on_scripts(&[
        "cjson.encode = 1",
        "bit.more = 1",
        "cmsgpack = 1",
        "return rawequal(struct, struct) and 1",
    ]);
}

#[test]
fn settings_of_cjson_belong_to_one_table() {
    both_agree_on_scripts(&[
        "local c = cjson.new() c.encode_sparse_array(true, 3, 4) return {tostring(c.encode_sparse_array()), \
         tostring(cjson.encode_sparse_array())}",
        "cjson.encode_number_precision(5) return cjson.encode(1/3)",
        "return cjson.encode(1/3)",
        "cjson.encode_number_precision(14) return cjson.encode(1/3)",
    ]);
}

#[test]
fn entries_of_a_group_go_from_consumer_to_consumer() {
    both_agree(&[
        "XADD k1 1-1 f v",
        "XADD k1 2-1 f v",
        "XADD k1 3-1 f v",
        "XGROUP CREATE k1 g 0",
        "XGROUP CREATE k1 g 0",
        "XREADGROUP GROUP g alice COUNT 2 STREAMS k1 >",
        "XDEL k1 1-1",
        "XREADGROUP GROUP g alice STREAMS k1 0",
        "XCLAIM k1 g bob 0 2-1 3-1",
        "XCLAIM k1 g bob 0 3-1 FORCE",
        "XPENDING k1 g",
        "XPENDING k1 g - + 10",
        "XAUTOCLAIM k1 g carol 0 0 COUNT 1",
        "XAUTOCLAIM k1 g carol 0 2 COUNT 1 JUSTID",
        "XINFO GROUPS k1",
        "XINFO CONSUMERS k1 g",
        "XGROUP DELCONSUMER k1 g carol",
        "XACK k1 g 3-1 2-1",
        "XINFO STREAM k1 FULL",
    ]);
}

#[test]
fn ids_are_read_as_in_redis() {
    both_agree(&[
        "XADD k1 007-01 f v",
        "XADD k1 7--05 f v",
        "XADD k1 7-18446744073709551615 f v",
        "XADD k1 7-* f v",
        "XADD k1 8-* f v",
        "XRANGE k1 (7-1 (9-0",
        "XRANGE k1 (18446744073709551615-18446744073709551615 +",
        "XREVRANGE k1 + - COUNT 0",
        "XSETID k1 18446744073709551615-18446744073709551615",
        "XADD k1 * f v",
        "XADD k1 18446744073709551615-* f v",
    ]);
}

#[test]
fn options_may_be_repeated_as_in_redis() {
    both_agree(&[
        "ZADD z 1 a 2 b",
        "ZREVRANGE z 0 0 WITHSCORES WITHSCORES",
        "ZREVRANGE z 0 0 LIMIT 0 1",
        "ZRANGE z 0 0 REV REV",
        "ZRANGE z 0 1 BYSCORE BYSCORE",
        "SET k1 v PX 100000 PX 200000",
        "SET k1 v PX 100000 EX 200000",
        "GETEX k1 PXAT 4000000000000 PXAT 4000000000000",
    ]);
}

#[test]
fn exec_with_an_extra_argument_ends_the_transaction() {
    both_agree(&["MULTI", "INCR k1", "EXEC extra", "EXEC", "GET k1", "EXEC extra"]);
}

#[test]
fn exec_with_an_extra_argument_ends_the_watches_without_a_transaction() {
    both_agree(&["WATCH k1", "EXEC extra", "SET k1 v", "MULTI", "GET k1", "EXEC"]);
}

#[test]
fn negative_zero_is_shown_in_a_union_that_is_not_stored() {
    both_agree(&[
        "ZADD z 0 a 1 b",
        "ZUNION 1 z WEIGHTS -1 WITHSCORES",
        "ZUNIONSTORE z2 1 z WEIGHTS -1",
        "ZRANGE z2 0 -1 WITHSCORES",
    ]);
}

#[test]
fn discard_with_an_extra_argument_aborts_the_transaction() {
    both_agree(&["MULTI", "INCR k1", "DISCARD extra", "EXEC", "GET k1"]);
}

#[test]
fn negative_zero_is_zero_in_a_sorted_set() {
    both_agree(&["ZADD z -0 a", "ZRANGE z 0 -1 WITHSCORES", "ZADD z INCR -0 b", "ZSCORE z b"]);
}

#[test]
fn zscan_prints_integer_scores_in_full() {
    both_agree(&["ZADD z -99999999999999992 a 1e18 b 0.1 c", "ZSCAN z 0", "ZRANGE z 0 -1 WITHSCORES"]);
}

#[test]
fn star_matches_the_empty_key_but_not_the_empty_channel() {
    both_agree(&["SET '' v", "KEYS *", "KEYS **", "SCAN 0 MATCH *", "PSUBSCRIBE * news*", "PUBLISH '' x"]);
}

#[test]
fn nul_ends_the_text_of_an_error() {
    both_agree(&["NOPE k1 a\\0b", "EXPIRE k1 10 a\\0b"]);
}

#[test]
fn counts_at_the_integer_limits_match_redis() {
    both_agree(&[
        "SRANDMEMBER k1 9223372036854775807",
        "SRANDMEMBER k1 -9223372036854775808",
        "SRANDMEMBER k1 -9223372036854775807",
        "LPOP k1 9223372036854775807",
    ]);
}

#[test]
fn random_elements_with_extra_arguments_fail_as_in_redis() {
    both_agree(&[
        "SRANDMEMBER k1 x extra",
        "HRANDFIELD k1 x extra",
        "ZRANDMEMBER k1 x extra",
        "LPOP k1 x extra",
    ]);
}

#[test]
fn number_out_of_range_becomes_the_smallest_integer() {
    both_agree(&["EVAL return(1e60) 0", "EVAL return(-1e60) 0", "EVAL return(0/0) 0"]);
}

#[test]
fn rotating_a_list_of_one_keeps_its_deadline() {
    both_agree(&["RPUSH l a", "EXPIRE l 1000", "LMOVE l l LEFT RIGHT", "TTL l"]);
}

/// A RESP2 subscriber may only PING, but commands that its transaction queued before it subscribed are executed.
#[test]
fn transaction_that_subscribes_runs_to_its_end() {
    both_agree_on_a_connection(&[
        "MULTI",
        "SUBSCRIBE c",
        "SET k1 v",
        "PING",
        "PING x",
        "GET k1",
        "EXEC",
        "PING",
    ]);
    both_agree_on_a_connection(&[
        "SUBSCRIBE c",
        "PING a b",
        "MULTI",
        "UNSUBSCRIBE c",
        "MULTI",
        "INCR k1",
        "EXEC",
    ]);
}

/// The write of such a transaction is not lost: other connections see it on both servers.
#[test]
fn write_in_a_transaction_that_subscribes_is_kept() {
    both_agree_on_a_connection(&["MULTI", "SUBSCRIBE c", "SET k2 kept", "RPUSH l a b", "EXEC"]);
    both_agree_on_a_connection(&[
        "MULTI",
        "PSUBSCRIBE c*",
        "SET k2 kept",
        "PUNSUBSCRIBE",
        "INCR k3",
        "EXEC",
        "GET k3",
    ]);
}

/// A RESP2 subscriber may not use `CONFIG`; in RESP3 it may.
#[test]
fn subcommand_is_refused_by_its_full_name() {
    both_agree_on_a_connection(&["SUBSCRIBE a", "CONFIG GET maxmemory"]);
}

#[test]
fn ranges_of_members_match_redis() {
    both_agree(&[
        "ZADD lex 0 a 0 b 0 c 0 d 0 e 0 ''",
        "ZRANGE lex - + BYLEX",
        "ZRANGE lex + [b BYLEX REV LIMIT 1 2",
        "ZRANGE lex [b (d BYLEX LIMIT 0 -1",
        "ZRANGE lex [b (d BYLEX WITHSCORES",
        "ZRANGE lex [b (d BYLEX BYSCORE",
        "ZRANGE lex b d BYLEX",
        "ZRANGEBYLEX lex (a [c",
        "ZRANGEBYLEX lex (c (c",
        "ZRANGEBYLEX none - +",
        "ZREVRANGEBYLEX lex (d - LIMIT 1 10",
        "ZLEXCOUNT lex - [c",
        "ZLEXCOUNT lex + -",
        "ZRANGESTORE copy lex [b + BYLEX LIMIT 1 2",
        "ZRANGE copy 0 -1 WITHSCORES",
        "ZRANGESTORE copy lex 0 -1 WITHSCORES",
        "ZRANGESTORE copy none 0 -1",
        "EXISTS copy",
        "ZREMRANGEBYLEX lex [a (c",
        "ZRANGE lex 0 -1",
        "ZREMRANGEBYLEX lex - +",
        "EXISTS lex",
    ]);
}

#[test]
fn combined_sorted_sets_match_redis() {
    both_agree(&[
        "ZADD a 1 x 2 y 3 z",
        "ZADD b 10 y 20 z 30 w",
        "SADD s x w",
        "SET text v",
        "ZUNION 2 a b WITHSCORES",
        "ZUNION 2 a b WEIGHTS 2 -1 AGGREGATE MIN WITHSCORES",
        "ZUNION 2 a b WEIGHTS 2",
        "ZUNION 2 a b WEIGHTS 2 x",
        "ZUNION 2 a s",
        "ZUNION 2 a text",
        "ZUNION 0 a",
        "ZUNION 3 a b",
        "ZUNION x a b",
        "ZINTER 3 a b none",
        "ZINTER 2 a a WITHSCORES",
        "ZINTER 2 a s AGGREGATE MAX WITHSCORES",
        "ZDIFF 2 a b WITHSCORES",
        "ZDIFF 2 a b WEIGHTS 1 2",
        "ZINTERCARD 2 a b",
        "ZINTERCARD 2 a b LIMIT 1",
        "ZINTERCARD 2 a b LIMIT -1",
        "ZUNIONSTORE c 2 a b",
        "ZRANGE c 0 -1 WITHSCORES",
        "ZINTERSTORE c 2 a none",
        "EXISTS c",
        "ZDIFFSTORE a 2 a b",
        "ZRANGE a 0 -1 WITHSCORES",
        "ZADD inf inf m",
        "ZADD ninf -inf m",
        "ZUNION 2 inf ninf WITHSCORES",
        "ZUNION 1 inf WEIGHTS 0 WITHSCORES",
        "SINTERCARD 1 s LIMIT 1",
        "SINTERCARD 0 s",
        "SINTERCARD 2 s",
        "SUNIONSTORE t s s",
        "SMOVE s t x",
        "SMOVE s t nope",
        "SMOVE s text x",
        "SCARD s",
        "SDIFFSTORE t t t",
        "EXISTS t",
    ]);
}

#[test]
fn copies_and_bits_match_redis() {
    both_agree(&[
        "SET a 1 EX 1000",
        "COPY a b",
        "COPY a b",
        "COPY a b REPLACE",
        "COPY a a",
        "COPY a c DB 9x",
        "COPY a c NOPE",
        "COPY none c",
        "TTL b",
        "RENAMENX a b",
        "RENAMENX a c",
        "RENAMENX none c",
        "RENAMENX b b",
        "MSETNX b 1 d 2",
        "MSETNX e 1 d 2",
        "MSETNX e",
        "SETRANGE e 3 xyz",
        "GET e",
        "SETRANGE none 0 ''",
        "EXISTS none",
        "SETRANGE e -1 x",
        "SETRANGE e 999999999999 x",
        "SUBSTR e 0 2",
        "SETBIT bits 7 1",
        "SETBIT bits 7 0",
        "SETBIT bits 9 1",
        "SETBIT bits 9 2",
        "SETBIT bits -1 1",
        "GETBIT bits 9",
        "GETBIT bits 1000",
        "GET bits",
        "GETBIT bits x",
        "BITPOS bits 1 0 x BIT",
        "BITPOS bits 1 0 x y",
        "BITPOS bits 1 x y y",
        "HSET h f hello",
        "HSTRLEN h f",
        "HSTRLEN h none",
        "HRANDFIELD h",
        "HRANDFIELD h 5 WITHVALUES",
        "HRANDFIELD h -3 WITHVALUES",
        "HRANDFIELD h 0",
        "HRANDFIELD none",
        "HRANDFIELD none 3",
        "HRANDFIELD h -9223372036854775807 WITHVALUES",
        "ZADD z 1 m",
        "ZRANDMEMBER z 2 WITHSCORES",
        "ZRANDMEMBER z -2",
        "ZRANDMEMBER none",
        "TOUCH a b none",
        "FLUSHALL",
        "RANDOMKEY",
        "SET only 1",
        "RANDOMKEY",
    ]);
}
