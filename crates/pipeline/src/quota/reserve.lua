-- Reserve calls, if they fit into every window and it is the turn of the run. Idempotent by id.
-- KEYS  as in quota.lua
-- ARGV  …, 5 id · 6 calls · 7 run · 8 weight · 9 hold_ms until the deadline · from 10 limit and window_ms
--       of each window
-- Returns {'granted', now_ms, until_ms, new foreign calls} · {'wait', now_ms, at_ms, new foreign calls} ·
--         {'hour', the store's hour} · {'lost', epoch found or ''}
-- TTL: one longest window after the end of the last call, when no window counts it any more.
local gone = lost(KEYS[1], ARGV[1])
if gone then return gone end
local now = quota_now()
local elsewhere = other_hour(now)
if elsewhere then return elsewhere end

local id, calls, run, weight, hold_ms = ARGV[5], tonumber(ARGV[6]), ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9])
local longest = delete_old(now, 10)
local foreign = take_foreign(now, 10)
local before = redis.call('ZSCORE', KEYS[2], id .. ':1')
if before then return {'granted', now, tonumber(before), foreign} end

local fits = fits_at(now, calls, 10)
local turn, overtakes = read_turns(run, now)
if fits > now or overtakes then
  -- A run that waits keeps its turn, so that another run cannot take everything.
  save_turn(run, turn, fits)
  collect_at(KEYS[4], fits + longest, now, ARGV[2])
  return {'wait', now, fits > now and fits or now + RETRY_MS, foreign}
end
for number = 1, calls do
  redis.call('ZADD', KEYS[2], int(now + hold_ms), id .. ':' .. number)
end
count_hour(math.floor(now / HOUR_MS), calls)
redis.call('HSET', KEYS[3], 'turn', string.format('%.6f', turn))
save_turn(run, turn + calls / weight, 0)
collect_at(KEYS[2], now + hold_ms + longest, now, ARGV[2])
collect_at(KEYS[4], now + hold_ms + longest, now, ARGV[2])
return {'granted', now, now + hold_ms, foreign}
