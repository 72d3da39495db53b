-- Functions that all scripts of a quota share.
-- KEYS  1 marker · 2 calls: zset by the end of a call or, while it is in flight, its deadline; with the score 0, the
--       number of the last reservation · 3 state
--       hash · 4 turns hash · for the public quota also 5–7 rate_limit and 8–10 counter, of the hour before the
--       caller's hour, the caller's hour, and the next
-- ARGV  1 epoch · 2 now_us ('' = the store's clock) · 3 number of the caller's hour · 4 counter_ttl_ms
-- A call occupies a window until one window after its score, so a call in flight occupies all windows.

local HOUR_MS = 3600000

-- The member of the calls that has the number of the last reservation.
local function sequence(n)
  return 'sequence:' .. int(n)
end

-- nil, or the answer {'lost', …}. The calls and the marker have the same number, so that the loss of one of them is
-- noticed, and its return with an older value. The marker then loses its epoch, so that the quota is rebuilt.
local function quota_lost()
  local gone = lost(KEYS[1], ARGV[1])
  if gone then return gone end
  local n = redis.call('HGET', KEYS[1], 'n') or 0
  if redis.call('ZSCORE', KEYS[2], sequence(n)) then return nil end
  redis.call('HDEL', KEYS[1], 'epoch')
  return {'lost', ''}
end

-- The number of a new reservation, as a fence: the log refuses a number that it has already.
local function next_number()
  local fence = next_fence(KEYS[1], tonumber(ARGV[1]))
  local n = fence - ARGV[1] * 4294967296
  redis.call('ZREM', KEYS[2], sequence(n - 1))
  redis.call('ZADD', KEYS[2], 0, sequence(n))
  return fence
end

-- How many calls have ended after a time, or have not ended.
local function ended_after(time)
  return redis.call('ZCOUNT', KEYS[2], '(' .. int(math.max(0, time)), '+inf')
end

-- The current time. Never goes backwards.
local function quota_now()
  local seen = stored(redis.call('HGET', KEYS[3], 'seen_ms'), 0, KEYS[3])
  local now = math.max(clock_ms(ARGV[2]), seen)
  if now > seen then redis.call('HSET', KEYS[3], 'seen_ms', int(now)) end
  return now
end

-- nil, or the reply for a caller whose hour is too far from the store's.
local function other_hour(now)
  local hour = math.floor(now / HOUR_MS)
  if #KEYS > 4 and math.abs(hour - ARGV[3]) > 1 then return {'hour', hour} end
end

-- Deletes calls that no window counts any more. Returns the longest window.
local function delete_old(now, first)
  local longest = 0
  for at = first, #ARGV, 2 do longest = math.max(longest, tonumber(ARGV[at + 1])) end
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '(0', int(now - longest))
  return longest
end

-- Adds foreign calls that end now, at most as many as the largest limit: more would have no effect.
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

-- The value of a public counter. Other clients add to it, and may write something else, which is repaired.
local function read_counter(key)
  return stored(redis.call('GET', key), 0, key)
end

-- Adds Hob's calls of an hour to both public counters. Returns how many calls other clients have added. Both counters
-- have the same value afterwards.
local function count_hour(hour, own)
  local at = hour - ARGV[3] + 1
  if #KEYS == 4 or at < 0 or at > 2 then return 0 end
  local field = 'hour:' .. int(hour)
  local known = stored(redis.call('HGET', KEYS[3], field), 0, KEYS[3])
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

-- Adds what other clients counted in the public counters as foreign calls, and deletes old hours from the state.
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

-- The most calls that one reservation can have.
local function smallest_limit(first)
  local least = math.huge
  for at = first, #ARGV, 2 do least = math.min(least, tonumber(ARGV[at])) end
  return least
end

-- When `calls` more calls fit into every window; now, if they fit already. A call in flight may end at once, so it counts
-- as ending now.
local function fits_at(now, calls, first)
  local fits = math.max(now, stored(redis.call('HGET', KEYS[3], 'blocked_ms'), 0, KEYS[3]))
  for at = first, #ARGV, 2 do
    local limit, period = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
    local taken = ended_after(now - period)
    local over = taken + calls - limit
    if over > 0 then
      local last = redis.call('ZREVRANGE', KEYS[2], taken - over, taken - over, 'WITHSCORES')
      fits = math.max(fits, math.min(now, tonumber(last[2])) + period)
    end
  end
  return fits
end
