//! Random calls of the libraries that Redis adds to Lua: `cjson`, `cmsgpack`, `bit` and `struct`.

use proptest::prelude::*;
use proptest::sample::select;

use crate::generate::{Words, texts};

/// Prints a value so that types, signs of zeros and the order of fields show. Tables are at most eight deep.
const SHOW: &str = r#"
local function show(v, depth)
  if type(v) == 'table' then
    if depth > 8 then return '...' end
    local parts = {}
    for k, item in pairs(v) do
      parts[#parts + 1] = show(k, depth + 1) .. '=' .. show(item, depth + 1)
    end
    return '{' .. table.concat(parts, ' ') .. '}'
  end
  if v == cjson.null then return 'null' end
  if type(v) == 'number' then return string.format('%.17g', v) end
  if type(v) == 'string' then return string.format('%q', v) end
  return tostring(v)
end
local function all(...)
  local shown = {}
  for i = 1, select('#', ...) do shown[i] = show((select(i, ...)), 0) end
  return table.concat(shown, ' | ')
end
"#;

/// What a test does with a value `v`, which is written as Lua.
const OF_VALUES: &[&str] = &[
    "return cjson.encode(v)",
    "return all(pcall(cjson.encode, v))",
    "return cmsgpack.pack(v)",
    "return all(cmsgpack.unpack(cmsgpack.pack(v, v)))",
    "return all(pcall(cjson.decode, cjson.encode(v)))",
    "return all(cmsgpack.unpack_one(cmsgpack.pack(v, 1)))",
    "local c = cjson.new() c.encode_sparse_array(true) return c.encode(v)",
    "local c = cjson.new() c.encode_sparse_array(false, 0, 5) return c.encode({v})",
    "local c = cjson.new() c.encode_invalid_numbers(true) return c.encode(v)",
    "local c = cjson.new() c.encode_invalid_numbers('null') return c.encode(v)",
    "local c = cjson.new() c.encode_max_depth(2) return c.encode(v)",
    "local c = cjson.new() c.encode_number_precision(3) return c.encode(v)",
    "return all(pcall(bit.tobit, v))",
    "return all(pcall(bit.bnot, v))",
    "return all(pcall(bit.bswap, v))",
    "return all(pcall(struct.pack, 'i4', v))",
    "return all(pcall(struct.pack, '>d', v))",
    "return all(pcall(struct.pack, 's', v))",
];

/// What a test does with a text, `ARGV[1]`.
const OF_TEXTS: &[&str] = &[
    "return all(cjson.decode(ARGV[1]))",
    "return all(pcall(cjson.decode, ARGV[1]))",
    "return cjson.encode(ARGV[1])",
    "return cjson.encode({[ARGV[1]] = 1})",
    "local c = cjson.new() c.decode_invalid_numbers(false) return all(c.decode(ARGV[1]))",
    "local c = cjson.new() c.decode_max_depth(2) return all(c.decode(ARGV[1]))",
    "return all(cmsgpack.unpack(ARGV[1]))",
    // Not `pcall(cmsgpack.unpack, …)`: a debug build of Lua aborts if `pcall` returns many values.
    "return all(pcall(function() return all(cmsgpack.unpack(ARGV[1])) end))",
    "return all(pcall(cmsgpack.unpack_one, ARGV[1], 1))",
    "return all(pcall(cmsgpack.unpack_limit, ARGV[1], 2))",
    "return all(pcall(cmsgpack.unpack_limit, ARGV[1], 1, 3))",
    "return all(cjson.decode(ARGV[1]), cmsgpack.unpack(ARGV[1]))",
    "return all(pcall(struct.size, ARGV[1]))",
    "return all(pcall(struct.unpack, 'bHi3>l s', ARGV[1]))",
];

/// What a test does with numbers, `a`, `b` and `c`.
const OF_NUMBERS: &[&str] = &[
    "return all(bit.band(a, b, c), bit.bor(a, b, c), bit.bxor(a, b, c))",
    "return all(bit.lshift(a, b), bit.rshift(a, b), bit.arshift(a, b), bit.rol(a, c), bit.ror(a, c))",
    "return all(bit.tobit(a), bit.bnot(b), bit.bswap(c))",
    "return all(bit.tohex(a), bit.tohex(b, c % 10))",
    "return all(pcall(cmsgpack.unpack_limit, 'abc', a, b))",
    "return cmsgpack.pack(a, {b}, {[c] = 1})",
    "return cjson.encode({a, b, c})",
    "return all(struct.unpack('<i8>I4b', struct.pack('<i8>I4b', a, b, c)))",
    "return struct.pack('!4bfi2dHl', a, b, c, a, b, c)",
];

fn lua_number() -> BoxedStrategy<String> {
    prop_oneof![
        4 => (-40i64..300).prop_map(|number| number.to_string()),
        2 => (-1000i64..1000, 0u32..5).prop_map(|(digits, places)| format!("{digits}e-{places}")),
        1 => any::<i64>().prop_map(|number| number.to_string()),
        1 => any::<f64>().prop_filter("finite", |number| number.is_finite()).prop_map(|number| format!("{number:e}")),
        2 => select(&[
            "0/0", "1/0", "-1/0", "-0", "0.1", "1e14", "1e15", "123456789012345", "2^31", "2^32", "2^53", "-2^31",
            "2^63", "2^64", "-2^63", "1e308", "5e-324", "0.5", "1.5", "2.5", "65535", "65536", "4294967296", "-32",
            "-33", "-129", "-32769",
        ][..]).prop_map(str::to_owned),
    ]
    .boxed()
}

fn lua_value() -> BoxedStrategy<String> {
    let leaf = prop_oneof![
        4 => lua_number(),
        3 => select(&[
            "''", "'a'", "'/\"\\\\'", "'\\0\\1\\127\\200'", "'\\n\\t\\r\\b\\f'", "'10'", "' 7 '", "'0x10'", "'nan'",
            "string.rep('x', 40)", "string.rep('y', 300)",
        ][..]).prop_map(str::to_owned),
        3 => select(&["true", "false", "nil", "cjson.null", "tostring", "{}"][..]).prop_map(str::to_owned),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        let key = select(&["a", "b", "c", "long_name"][..]);
        let index = prop_oneof![1i64..8, -2i64..30].prop_map(|index| index.to_string());
        let other = select(&["true", "1.5", "'1'", "0", "2^40"][..]).prop_map(str::to_owned);
        prop_oneof![
            3 => prop::collection::vec(inner.clone(), 0..5).prop_map(|items| format!("{{{}}}", items.join(", "))),
            // One field: the order of several is compared only after decoding, where both insert alike.
            2 => (key, inner.clone()).prop_map(|(key, value)| format!("{{{key} = {value}}}")),
            2 => (prop_oneof![4 => index, 1 => other], inner)
                .prop_map(|(key, value)| format!("{{[{key}] = {value}}}")),
        ]
    })
    .boxed()
}

fn json() -> BoxedStrategy<String> {
    let leaf = prop_oneof![
        3 => select(&[
            "1", "-0", "1.5e3", "0x10", "-", "+1", "01", "1.", ".5", "1e", "inf", "-Infinity", "nan", "NaN(x)", "1e999",
            "123456789012345678901234567890", "0x1p-3", "-nan", "Inf",
        ][..]).prop_map(str::to_owned),
        3 => select(&[
            "\"\"", "\"a\"", "\"\\u0041\"", "\"\\ud83d\\ude00\"", "\"\\ud83d\"", "\"\\ude00\"", "\"\\u00e9\"",
            "\"\\uZZZZ\"", "\"\\n\\/\\\\\"", "\"\\x\"", "\"open", "\"a\\", "\"\\u12",
        ][..]).prop_map(str::to_owned),
        2 => select(&["true", "false", "null", "nul", "tru", "True", "", "{", "[", "}", ",", "'a'"][..])
            .prop_map(str::to_owned),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let key = select(&["\"a\"", "\"b\"", "\"c\"", "\"1\"", "\"\"", "1", "a"][..]);
        let pair = (key, inner.clone()).prop_map(|(key, value)| format!("{key}: {value}"));
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec(pair, 0..4).prop_map(|pairs| format!(" {{{}}}\n", pairs.join(" ,"))),
            inner.prop_map(|value| format!("{value} {value}")),
        ]
    })
    .boxed()
}

/// MessagePack that is mostly valid.
fn packed() -> BoxedStrategy<Vec<u8>> {
    let leaf = prop_oneof![
        any::<u8>().prop_map(|byte| vec![byte]),
        prop::collection::vec(any::<u8>(), 0..10),
        (select(&[0xcau8, 0xcb, 0xcc, 0xcd, 0xce, 0xcf, 0xd0, 0xd1, 0xd2, 0xd3][..]), any::<[u8; 8]>())
            .prop_map(|(tag, bytes)| {
                let length = match tag {
                    0xcc | 0xd0 => 1,
                    0xcd | 0xd1 => 2,
                    0xca | 0xce | 0xd2 => 4,
                    _ => 8,
                };
                [&[tag], &bytes[..length]].concat()
            }),
        "[a-c]{0,3}".prop_map(|text| [vec![0xa0 | text.len() as u8], text.into_bytes()].concat()),
        "[a-c]{0,3}".prop_map(|text| [vec![0xd9, text.len() as u8], text.into_bytes()].concat()),
        "[a-c]{0,3}".prop_map(|text| [vec![0xda, 0, text.len() as u8], text.into_bytes()].concat()),
        "[a-c]{0,3}".prop_map(|text| [vec![0xdb, 0, 0, 0, text.len() as u8], text.into_bytes()].concat()),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        let items = prop::collection::vec(inner, 0..4);
        prop_oneof![
            items.clone().prop_map(|items| [vec![0x90 | items.len() as u8], items.concat()].concat()),
            items.clone().prop_map(|items| [vec![0xdc, 0, items.len() as u8], items.concat()].concat()),
            items.clone().prop_map(|items| [vec![0x80 | (items.len() / 2) as u8], items.concat()].concat()),
            items.prop_map(|items| [vec![0xdf, 0, 0, 0, (items.len() / 2) as u8], items.concat()].concat()),
        ]
    })
    .boxed()
}

fn format() -> BoxedStrategy<String> {
    let option = prop_oneof![
        6 => select(&["b", "B", "h", "H", "l", "L", "T", "i", "I", "f", "d", "s", "x", " ", ">", "<"][..])
            .prop_map(str::to_owned),
        2 => (select(&["i", "I", "c", "!"][..]), 0u8..12).prop_map(|(option, size)| format!("{option}{size}")),
        1 => select(&["i33", "c0", "c", "!", "!3", "z", "5", "i99999999999"][..]).prop_map(str::to_owned),
    ];
    prop::collection::vec(option, 0..5).prop_map(|options| options.concat()).boxed()
}

fn script(body: &str, arguments: Vec<Vec<u8>>) -> Words {
    let head = vec![b"EVAL".to_vec(), [SHOW, body].concat().into_bytes(), b"0".to_vec()];
    [head, arguments].concat()
}

pub(crate) fn command() -> BoxedStrategy<Words> {
    let any_text = prop_oneof![
        4 => json().prop_map(String::into_bytes),
        4 => packed(),
        2 => format().prop_map(String::into_bytes),
        1 => texts(&["", "\0", "1\0", "12\0x", "[1\0", "{\"a\":\0}", "\u{feff}1"]),
    ];
    prop_oneof![
        3 => (select(OF_VALUES), lua_value())
            .prop_map(|(body, value)| script(&format!("local v = {value} {body}"), vec![])),
        3 => (select(OF_TEXTS), any_text).prop_map(|(body, text)| script(body, vec![text])),
        2 => (select(OF_NUMBERS), lua_number(), lua_number(), lua_number())
            .prop_map(|(body, a, b, c)| script(&format!("local a, b, c = {a}, {b}, {c} {body}"), vec![])),
        2 => (format(), prop::collection::vec(lua_value(), 0..5)).prop_map(|(format, values)| {
            let values: String = values.iter().map(|value| format!(", {value}")).collect();
            script(&format!("return all(pcall(struct.pack, ARGV[1]{values}))"), vec![format.into_bytes()])
        }),
        2 => (format(), prop::collection::vec(any::<u8>(), 0..30), -2i64..6).prop_map(|(format, data, at)| {
            script(&format!("return all(pcall(struct.unpack, ARGV[1], ARGV[2], {at}))"), vec![format.into_bytes(), data])
        }),
    ]
    .boxed()
}
