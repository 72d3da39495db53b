-- Settle a reservation: calls that were made end now, the others are released. Applies the feedback of the API: for how
-- long it refuses calls, and how many calls it has counted.
-- KEYS  as in quota.lua
-- ARGV  …, 5 id · 6 calls reserved · 7 calls made · 8 reserved_ms · 9 block_ms (0 = not
--       refused) · 10 calls that the API counted · 11 length of that window in ms (0 = unknown) · from 12 limit and
--       window_ms of each window
-- Returns {'settled', end_ms, blocked until ms or 0, new foreign calls} · {'hour', …} · {'lost', …}
-- No TTL: without the calls the quota is lost.
local gone = quota_lost()
if gone then return gone end
local now = quota_now()
local elsewhere = other_hour(now)
if elsewhere then return elsewhere end

local id, reserved, made = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
-- Rounded up: a call must not appear to end earlier than it did.
local ended = math.max(now, math.ceil(clock_us(ARGV[2]) / 1000))
delete_old(now, 12)
local foreign = take_foreign(now, 12)
for number = 1, made do
  redis.call('ZADD', KEYS[2], int(ended), id .. ':' .. number)
end
local back = 0
for number = made + 1, reserved do
  back = back + redis.call('ZREM', KEYS[2], id .. ':' .. number)
end
if back > 0 then count_hour(math.floor(ARGV[8] / HOUR_MS), -back) end

local counted, period = tonumber(ARGV[10]), tonumber(ARGV[11])
if period > 0 then
  local taken = ended_after(now - period)
  if counted > taken then foreign = foreign + add_foreign(ended, counted - taken, 12) end
end
local blocked = stored(redis.call('HGET', KEYS[3], 'blocked_ms'), 0, KEYS[3])
if tonumber(ARGV[9]) > 0 then
  blocked = math.max(blocked, ended + ARGV[9])
  redis.call('HSET', KEYS[3], 'blocked_ms', int(blocked))
end
return {'settled', ended, blocked > now and blocked or 0, foreign}
