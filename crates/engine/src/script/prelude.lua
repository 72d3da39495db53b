-- The world that scripts live in: an allow list of Lua's own functions and the `redis` table, none of
-- which a script can change.
--
-- Given:   call(...), pcall(...)         call the store
--          text(error) -> what a failed `call` said
--          check_stop() fails once the script has to stop
--          log(level, text), sha1hex(text), line() -> where the script is
-- Returns: run(script, keys, argv) -> ok, result, and the environment to load scripts with
local call, store_pcall, text_of, check_stop, log, sha1hex, line = ...
local error, getmetatable, pcall, setmetatable = error, getmetatable, pcall, setmetatable
local rawset, tostring, type, xpcall = rawset, tostring, type, xpcall

local function readonly(real)
  return setmetatable({}, {
    __index = real,
    __newindex = function() error('Attempt to modify a readonly table', 2) end,
    __metatable = false,
  })
end

local redis = {
  LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
  call = call,
  log = log,
  pcall = store_pcall,
  sha1hex = sha1hex,
}

function redis.status_reply(text)
  if type(text) ~= 'string' then return { err = 'ERR wrong number or type of arguments' } end
  return { ok = text }
end

-- A text without a code of its own gets `ERR`.
function redis.error_reply(text)
  if type(text) ~= 'string' then return { err = 'ERR wrong number or type of arguments' } end
  if text:sub(1, 1) == '-' then text = text:sub(2) end
  if not text:find(' ', 1, true) then text = 'ERR ' .. text end
  return { err = text }
end

-- What a script sees of an error: a failed `call` is a table with its text, whoever raised it.
local function unwrap_error(err)
  if type(err) == 'userdata' then err = { err = text_of(err) } end
  return err
end

-- As in Redis, `pcall` hands on the text alone. A script that has to stop gets no further than this: what
-- its `pcall` caught is raised again outside of it.
local function pcall_result(ok, err, ...)
  check_stop()
  if ok then return ok, err, ... end
  err = unwrap_error(err)
  if type(err) == 'table' and type(err.err) == 'string' then err = err.err end
  return false, err
end

local function script_pcall(...)
  return pcall_result(pcall(...))
end

-- The handler runs after the fact: within it Lua would not count instructions, and it could go on for ever.
local function handle(handler, ok, err, ...)
  check_stop()
  if ok then return ok, err, ... end
  return false, handler(unwrap_error(err))
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

-- Adds where in the script it happened, as Redis does.
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
