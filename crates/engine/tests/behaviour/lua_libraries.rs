//! `cjson`, `cmsgpack`, `bit` and `struct`: what they may cost, and a few values by example. `tests/differential` compares
//! them with Redis.

use hob_engine::{Config, Engine, Reply};

use crate::{error, eval};

#[test]
fn values_survive_encoding() {
    let engine = Engine::default();
    for (script, expected) in [
        ("return cjson.encode({1, 'a', true, cjson.null, {}, 1.5})", r#"[1,"a",true,null,{},1.5]"#),
        ("return cjson.decode('{\"a\": [1, {\"b\": \"\\\\u20ac\"}]}').a[2].b", "€"),
        ("local t = cmsgpack.unpack(cmsgpack.pack({a = {1, 2, 'x'}})) return t.a[3]", "x"),
        ("return bit.tohex(bit.bxor(0xff00, bit.lshift(0xf, 4)))", "0000fff0"),
        ("local a, b = struct.unpack('>I2s', struct.pack('>I2s', 258, 'ab')) return a .. b", "258ab"),
    ] {
        assert_eq!(eval(&engine, script, &[]), Reply::Bulk(expected.as_bytes().to_vec()), "{script}");
    }
}

/// A short text can describe many tables, and a small table can contain itself many times.
#[test]
fn memory_of_the_libraries_is_bounded() {
    let engine = Engine::new(Config { script_memory_bytes: 2 << 20, ..Config::default() });
    for script in [
        "return cjson.decode('[' .. string.rep('[],', 100000) .. '[]]')",
        "return cmsgpack.unpack('\\221\\0\\1\\134\\160' .. string.rep('\\144', 100000))",
        "local t = {} for i = 1, 15 do t = {t, t, t, t, t, t, t, t} end return cjson.encode(t)",
        "local t = {} for i = 1, 15 do t = {t, t, t, t, t, t, t, t} end return cmsgpack.pack(t)",
        "local c = cjson.new() c.encode_sparse_array(false, 0) return c.encode({[2000000000] = 1})",
        "return #cjson.encode(string.rep('\\1', 400000))",
        "return #struct.pack(string.rep('s', 100), unpack((function() local t = {} local s = string.rep('x', 1e5) \
         for i = 1, 100 do t[i] = s end return t end)()))",
    ] {
        let text = error(eval(&engine, script, &[]));
        assert!(text.contains("not enough memory"), "{script}: {text}");
        assert_eq!(eval(&engine, "return 1", &[]), Reply::Int(1), "the next script runs");
    }
}

#[test]
fn nesting_is_bounded_whatever_a_script_sets() {
    let engine = Engine::default();
    for (script, reason) in [
        (
            "cjson.decode_max_depth(2000000000) return cjson.decode(string.rep('[', 1000000))",
            "Found too many nested data structures (1001)",
        ),
        (
            "cjson.encode_max_depth(2000000000) local t = {} for i = 1, 100000 do t = {a = t} end return cjson.encode(t)",
            "Cannot serialise, excessive nesting (1001)",
        ),
        ("return cmsgpack.unpack(string.rep('\\145', 1000000))", "stack overflow"),
        ("return cmsgpack.unpack(string.rep('\\129', 1000000))", "stack overflow"),
    ] {
        let text = error(eval(&engine, script, &[]));
        assert!(text.contains(reason), "{script}: {text}");
    }
    let deep =
        "local t = {} for i = 1, 999 do t = {a = t} end return #cjson.encode(cjson.decode(cjson.encode(t)))";
    assert_eq!(eval(&engine, deep, &[]), Reply::Int(999 * 6 + 2));
}
