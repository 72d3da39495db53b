-- Shared by all scripts of a quota.
-- KEYS  1 marker · 2 calls: zset by when a call's answer came or, while it is under way, must have come · 3 state
--       hash · 4 turns hash · of the public quota also 5–7 rate_limit and 8–10 counter, of the hour before the
--       caller's, the caller's and the next
-- ARGV  1 epoch · 2 now_us ('' = the store's clock) · 3 number of the caller's hour · 4 counter_ttl_ms
-- A call occupies a window until one window after its score, so a call under way occupies all of them.

local HOUR_MS = 3600000

-- The time, never earlier than any that the quota has seen.
local function quota_now()
  local seen = tonumber(redis.call('HGET', KEYS[3], 'seen_ms') or 0)
  local now = math.max(clock_ms(ARGV[2]), seen)
  if now > seen then redis.call('HSET', KEYS[3], 'seen_ms', int(now)) end
  return now
end

-- nil, or the answer for a caller whose clock names other hours than the store's.
local function other_hour(now)
  local hour = math.floor(now / HOUR_MS)
  if #KEYS > 4 and math.abs(hour - ARGV[3]) > 1 then return {'hour', hour} end
end

-- Forgets the calls that no window counts any more.
local function forget(now, first)
  local longest = 0
  for at = first, #ARGV, 2 do longest = math.max(longest, tonumber(ARGV[at + 1])) end
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', int(now - longest))
  return longest
end

-- Adds calls that others made until now. More than a window's limit would say no more than the limit does.
local function add_foreign(now, count, first)
  local most = 0
  for at = first, #ARGV, 2 do most = math.max(most, tonumber(ARGV[at])) end
  local added = math.min(count, most)
  for _ = 1, added do
    local number = redis.call('HINCRBY', KEYS[3], 'foreign', 1)
    redis.call('ZADD', KEYS[2], int(now), 'foreign:' .. int(now) .. ':' .. number)
  end
  return added
end

-- What a public counter says; 0 where it says nothing, or nonsense.
local function read_counter(key)
  local value = redis.pcall('GET', key)
  if type(value) == 'table' then redis.call('DEL', key) end
  return type(value) == 'string' and tonumber(value) or 0
end

-- Adds our own calls of an hour to the public counters, and answers with those that others have added. Both
-- counters say the same afterwards.
local function count_hour(hour, own)
  local at = hour - ARGV[3] + 1
  if #KEYS == 4 or at < 0 or at > 2 then return 0 end
  local field = 'hour:' .. int(hour)
  local known = tonumber(redis.call('HGET', KEYS[3], field) or 0)
  local rate, counter = read_counter(KEYS[5 + at]), read_counter(KEYS[8 + at])
  local rise = math.floor(math.max(0, rate - known) + math.max(0, counter - known))
  local count = math.max(0, known + rise + own)
  if count ~= known or rate ~= known or counter ~= known then
    redis.call('SET', KEYS[5 + at], int(count), 'PX', ARGV[4])
    redis.call('SET', KEYS[8 + at], int(count), 'PX', ARGV[4])
    redis.call('HSET', KEYS[3], field, int(count))
  end
  return rise
end

-- Takes in what others added to the public counters, and forgets hours that are over.
local function take_foreign(now, first)
  if #KEYS == 4 then return 0 end
  local rise = 0
  for hour = ARGV[3] - 1, ARGV[3] + 1 do rise = rise + count_hour(hour, 0) end
  for _, field in ipairs(redis.call('HKEYS', KEYS[3])) do
    local hour = string.match(field, '^hour:(%d+)$')
    if hour and hour + 3 < now / HOUR_MS then redis.call('HDEL', KEYS[3], field) end
  end
  if rise == 0 then return 0 end
  return add_foreign(now, rise, first)
end

-- When `calls` more fit into every window: now, if they fit already. A call under way may be answered at once,
-- so that nothing can fit before one window from now, but perhaps then.
local function fits_at(now, calls, first)
  local fits = math.max(now, tonumber(redis.call('HGET', KEYS[3], 'blocked_ms') or 0))
  for at = first, #ARGV, 2 do
    local limit, period = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
    local taken = redis.call('ZCOUNT', KEYS[2], '(' .. int(now - period), '+inf')
    local over = taken + calls - limit
    if over > 0 then
      local last = redis.call('ZREVRANGE', KEYS[2], taken - over, taken - over, 'WITHSCORES')
      fits = math.max(fits, math.min(now, tonumber(last[2])) + period)
    end
  end
  return fits
end
