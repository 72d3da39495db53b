-- Shared by every script that looks at the time. `given` is the argument that a test may pass a time in
-- with; '' means the store's own clock.

local function clock_us(given)
  if given ~= '' then return tonumber(given) end
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

local function clock_ms(given)
  return math.floor(clock_us(given) / 1000)
end

-- An integer as text: Lua's own form keeps 14 digits only.
local function int(number)
  return string.format('%.0f', number)
end

-- Lets the store collect a key once time has reached at_ms. By the store's clock that is the very clock
-- that decisions are made on, and now = max(TIME, stored) only ever runs ahead of it: so the key is there
-- for as long as a decision needs it. Under a test's clock it is the same length of real time.
local function collect_at(key, at_ms, now_ms, given)
  if given == '' then
    redis.call('PEXPIREAT', key, int(math.ceil(at_ms)))
  else
    redis.call('PEXPIRE', key, int(math.max(1, math.ceil(at_ms - now_ms))))
  end
end
