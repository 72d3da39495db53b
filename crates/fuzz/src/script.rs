//! The decoders of the engine's Lua libraries, which scripts run on whatever clients stored.

use std::sync::LazyLock;

use hob_engine::{Config, Engine, Reply};

static ENGINE: LazyLock<Engine> =
    LazyLock::new(|| Engine::new(Config { script_memory_bytes: 32 << 20, ..Config::default() }));

/// Returns whether the argument was decoded. What was decoded from JSON can be encoded, unless it contains an invalid
/// number, and is then the same after being decoded again.
const SCRIPT: &str = "
    local function is_decoded(decode, ...)
      local ok, reason = pcall(function(...) return (decode(...)) end, ...)
      if not ok then assert(type(reason) == 'string') end
      return ok and 1 or 0
    end
    if ARGV[1] == 'j' then
      local ok, value = pcall(cjson.decode, ARGV[2])
      local encoded, text = pcall(cjson.encode, value)
      if ok and encoded then assert(#cjson.encode(cjson.decode(text)) == #text) end
      return ok and 1 or 0
    elseif ARGV[1] == 'm' then
      return is_decoded(cmsgpack.unpack, ARGV[2])
    end
    local format, data = ARGV[2]:sub(1, 8), ARGV[2]:sub(9)
    is_decoded(struct.size, format)
    return is_decoded(struct.unpack, format, data)";

/// JSON, MessagePack or a C structure is decoded or rejected with a text. The first byte chooses the library.
pub fn lua_library(data: &[u8]) {
    let Some((library, data)) = data.split_first() else { return };
    let reply = ENGINE.execute(&[b"EVAL", SCRIPT.as_bytes(), b"0", &[*library], data]);
    assert!(matches!(reply, Reply::Int(0 | 1)), "{reply:?}");
}
