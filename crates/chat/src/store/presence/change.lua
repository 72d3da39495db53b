-- Shared functions of the presence scripts. All of them have
-- KEYS  1 online, 2 sockets set, 3 presence hash (owner by socket, and `version`), 4 last seen

-- Check the types before the first write: a key that another client has replaced would abort the script halfway and
-- leave the user online forever. The caller deletes it and runs the script again.
for index, kind in ipairs({'string', 'set', 'hash', 'string'}) do
  local found = redis.call('TYPE', KEYS[index]).ok
  if found ~= kind and found ~= 'none' then return redis.error_reply('WRONGTYPE ' .. KEYS[index]) end
end

-- ISO 8601 in UTC. Redis has no calendar for scripts. (Days are counted in eras of 400 years that start in March.)
local function iso(ms)
  local floor = math.floor
  local days = floor(ms / 86400000)
  local rest = ms - days * 86400000
  local era = floor((days + 719468) / 146097)
  local doe = days + 719468 - era * 146097
  local yoe = floor((doe - floor(doe / 1460) + floor(doe / 36524) - floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + floor(yoe / 4) - floor(yoe / 100))
  local mp = floor((5 * doy + 2) / 153)
  local month = mp < 10 and mp + 3 or mp - 9
  local year = yoe + era * 400 + (month <= 2 and 1 or 0)
  return string.format('%04d-%02d-%02dT%02d:%02d:%02d.%03dZ', year, month, doy - floor((153 * mp + 2) / 5) + 1,
    floor(rest / 3600000), floor(rest / 60000) % 60, floor(rest / 1000) % 60, rest % 1000)
end

-- Last seen never moves backwards. ISO texts sort by time; a text of another client is overwritten.
local function see(us)
  local at = iso(math.floor(us / 1000))
  local held = redis.call('GET', KEYS[4]) or ''
  if held < at or #held ~= #at or not string.find(held, '^%d+%-%d+%-%d+T[%d:.]+Z$') then
    redis.call('SET', KEYS[4], at)
  end
  return at
end

local function sockets_open()
  return redis.call('HLEN', KEYS[3]) - redis.call('HEXISTS', KEYS[3], 'version')
end

-- The version of the last change; 0 if there is none, or another client has changed it.
local function last_version()
  local held = redis.call('HGET', KEYS[3], 'version') or ''
  return #held <= 16 and tonumber(string.match(held, '^%d+$') or 0) or 0
end

-- The next version: the time in microseconds, or the last version plus one if the clock stood still or went
-- backwards.
local function next_version(given)
  return math.max(clock_us(given), last_version() + 1)
end

-- Save a change and publish it atomically.
local function announce(online, channel, user_json, given)
  local version = next_version(given)
  redis.call('HSET', KEYS[3], 'version', int(version))
  redis.call('SET', KEYS[1], online)
  local at = see(version)
  if channel ~= '' then
    redis.call('PUBLISH', channel,
      '{"userId":' .. user_json .. ',"timestamp":"' .. at .. '","version":' .. int(version) .. '}')
  end
  return int(version)
end

-- Finish after the sockets in `gone` were removed from the presence hash. A user without sockets goes offline even if
-- none was removed: Redis may have evicted the hash, but not the state.
local function part(gone, channel, user_json, given)
  local open = sockets_open()
  if #gone == 0 and (open > 0 or redis.call('GET', KEYS[1]) ~= 'true') then return {'unknown'} end
  if open > 0 then
    redis.call('SREM', KEYS[2], unpack(gone))
    see(clock_us(given))
    return {'remaining', int(last_version()), unpack(gone)}
  end
  redis.call('DEL', KEYS[2])
  local version = announce('false', channel, user_json, given)
  redis.call('PEXPIRE', KEYS[3], 86400000)
  return {'offline', version, unpack(gone)}
end
