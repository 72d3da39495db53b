-- Reserve calls, if they fit into every window beside those that other sharers are entitled to first. Idempotent by id.
-- KEYS  as in quota.lua
-- ARGV  …, 5 id · 6 calls · 7 run · 8 weight · 9 hold_ms until the deadline · from 10 limit and window_ms
--       of each window
-- Returns {'granted', now_ms, until_ms, new foreign calls, number} · {'wait', now_ms, at_ms, new foreign calls} ·
--         {'hour', the store's hour} · {'lost', epoch found or ''}
-- The calls have no TTL: without them the quota is lost. TTL of the turns: a later one of another sharer would be
-- shortened, which only costs that sharer its place.
local gone = quota_lost()
if gone then return gone end
local now = quota_now()
local elsewhere = other_hour(now)
if elsewhere then return elsewhere end

local id, calls, run, weight, hold_ms = ARGV[5], tonumber(ARGV[6]), ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9])
delete_old(now, 10)
local foreign = take_foreign(now, 10)
local before = redis.call('ZSCORE', KEYS[2], id .. ':1')
if before then return {'granted', now, tonumber(before), foreign, int(next_number())} end

local sharer, turn, owed = read_turns(run, weight, now, 10)
local fits = fits_at(now, calls, 10)
local due = fits
if owed > 0 then due = fits_at(now, math.min(calls + owed, smallest_limit(10)), 10) end
if due > now then
  -- The sharers that the free calls are kept for may take them soon, or be gone.
  if fits <= now then due = math.min(due, now + RETRY_MS) end
  keep_turn(sharer, turn, calls, weight, now, due)
  collect_at(KEYS[4], due + FORGET_MS, now, ARGV[2])
  return {'wait', now, due, foreign}
end
for number = 1, calls do
  redis.call('ZADD', KEYS[2], int(now + hold_ms), id .. ':' .. number)
end
count_hour(math.floor(now / HOUR_MS), calls)
advance_turn(sharer, turn, calls, weight, now)
collect_at(KEYS[4], now + FORGET_MS, now, ARGV[2])
return {'granted', now, now + hold_ms, foreign, int(next_number())}
