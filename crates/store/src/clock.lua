-- Shared by every script that uses the time. `given` is the script's argument for the time: '' means the store's clock,
-- and tests pass a time.

local function clock_us(given)
  if given ~= '' then return tonumber(given) end
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

local function clock_ms(given)
  return math.floor(clock_us(given) / 1000)
end

-- An integer as text. Lua's tostring keeps only 14 digits.
local function int(number)
  return string.format('%.0f', number)
end

-- Makes a key expire at at_ms. With the store's clock, decisions use now = max(TIME, stored time), which is never behind
-- TIME, so a key does not expire while a decision still needs it. With the clock of a test, the key expires after the
-- same duration of real time.
local function collect_at(key, at_ms, now_ms, given)
  if given == '' then
    redis.call('PEXPIREAT', key, int(math.ceil(at_ms)))
  else
    redis.call('PEXPIRE', key, int(math.max(1, math.ceil(at_ms - now_ms))))
  end
end
