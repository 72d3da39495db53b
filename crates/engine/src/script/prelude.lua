-- The environment of scripts: an allow list of Lua's functions and the `redis` table, all read-only.
--
-- Given:   redis, the table of functions that need no store
--          call(...), pcall(...)         call the store
--          text(error) -> the text of a failed function, and whether it was `call`
--          check_stop() fails once the script must stop
--          line() -> the current line of the script
--          libraries: tables of functions by name
-- Returns: run(script, keys, argv) -> ok, result, and the environment to load scripts with
local redis, call, store_pcall, text_of, check_stop, line, libraries = ...
local error, getmetatable, pcall, setmetatable = error, getmetatable, pcall, setmetatable
local rawset, tostring, type, xpcall = rawset, tostring, type, xpcall

local function readonly(real)
  return setmetatable({}, {
    __index = real,
    __newindex = function() error('Attempt to modify a readonly table', 2) end,
    __metatable = false,
  })
end

redis.call, redis.pcall = call, store_pcall

function redis.status_reply(text)
  if type(text) ~= 'string' then return { err = 'ERR wrong number or type of arguments' } end
  return { ok = text }
end

-- A text without an error code gets `ERR`.
function redis.error_reply(text)
  if type(text) ~= 'string' then return { err = 'ERR wrong number or type of arguments' } end
  if text:sub(1, 1) == '-' then text = text:sub(2) end
  if not text:find(' ', 1, true) then text = 'ERR ' .. text end
  return { err = text }
end

-- Converts the error of a failed `call` to a table with its text, and that of a library to its text.
local function unwrap_error(err)
  if type(err) ~= 'userdata' then return err end
  local text, by_call = text_of(err)
  if by_call then return { err = text } end
  return text or err
end

-- As in Redis, `pcall` returns only the text. A script that must stop fails here: the error that its `pcall` caught is
-- raised again outside of it.
local function pcall_result(ok, ...)
  check_stop()
  if ok then return ok, ... end
  local err = unwrap_error((...))
  if type(err) == 'table' and type(err.err) == 'string' then err = err.err end
  return false, err
end

local function script_pcall(...)
  return pcall_result(pcall(...))
end

-- The handler runs after `pcall`: within it Lua would not count instructions, and it could run forever.
local function handle(handler, ok, ...)
  check_stop()
  if ok then return ok, ... end
  return false, handler(unwrap_error((...)))
end

local function script_xpcall(script, handler)
  return handle(handler, pcall(script))
end

string.dump = nil
getmetatable('').__metatable = false

local globals = setmetatable({
  assert = assert, error = error, getmetatable = getmetatable, ipairs = ipairs, next = next, pairs = pairs,
  pcall = script_pcall, rawequal = rawequal, rawget = rawget, select = select, setmetatable = setmetatable,
  tonumber = tonumber, tostring = tostring, type = type, unpack = unpack, xpcall = script_xpcall,
  math = readonly(math), redis = readonly(redis), string = readonly(string), table = readonly(table),
}, {
  __index = function(_, name)
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
  end,
})

for name, library in pairs(libraries) do globals[name] = readonly(library) end

-- Adds the position in the script, as Redis does.
local function locate(err)
  err = unwrap_error(err)
  if type(err) ~= 'table' then err = { err = 'ERR ' .. tostring(err) } end
  rawset(err, 'line', line())
  return err
end

local function run(script, keys, argv)
  globals.KEYS, globals.ARGV = keys, argv
  local ok, result = xpcall(script, locate)
  globals.KEYS, globals.ARGV = nil, nil
  return ok, result
end

return run, readonly(globals)
