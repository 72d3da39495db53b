-- Reserve calls, if they fit into every window and it is the run's turn. The same id asks for the same calls again.
-- KEYS  as in quota.lua
-- ARGV  …, 5 id · 6 calls · 7 run · 8 weight · 9 hold_ms: the answer has come by then · from 10 limit and window_ms
--       of each window
-- Returns {'granted', now_ms, until_ms, foreign calls noticed} · {'wait', now_ms, at_ms, foreign calls noticed} ·
--         {'hour', the store's hour} · {'lost', epoch found or ''}
-- TTL: calls and turns go one longest window after the last call's end, when they say nothing any more.
local gone = lost(KEYS[1], ARGV[1])
if gone then return gone end
local now = quota_now()
local elsewhere = other_hour(now)
if elsewhere then return elsewhere end

local id, calls, run, weight, hold_ms = ARGV[5], tonumber(ARGV[6]), ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9])
local longest = forget(now, 10)
local foreign = take_foreign(now, 10)
local before = redis.call('ZSCORE', KEYS[2], id .. ':1')
if before then return {'granted', now, tonumber(before), foreign} end

local fits = fits_at(now, calls, 10)
local turn, overtakes = look_at_turns(run, now)
if fits > now or overtakes then
  -- Whoever lets another go first contends already, lest that one take everything.
  keep_turn(run, turn, fits)
  collect_at(KEYS[4], fits + longest, now, ARGV[2])
  return {'wait', now, fits > now and fits or now + RETRY_MS, foreign}
end
for number = 1, calls do
  redis.call('ZADD', KEYS[2], int(now + hold_ms), id .. ':' .. number)
end
count_hour(math.floor(now / HOUR_MS), calls)
redis.call('HSET', KEYS[3], 'turn', string.format('%.6f', turn))
keep_turn(run, turn + calls / weight, 0)
collect_at(KEYS[2], now + hold_ms + longest, now, ARGV[2])
collect_at(KEYS[4], now + hold_ms + longest, now, ARGV[2])
return {'granted', now, now + hold_ms, foreign}
