-- Restore calls from the call log to a quota that is being rebuilt, in chunks. A call that exists is left unchanged: the
-- log may be older.
-- KEYS  1 marker hash · 2 calls zset · 3 state hash
-- ARGV  1 epoch · 2 now_us ('' = the store's clock) · 3 newest time in the log, ms · 4 blocked until, ms · 5 number of
--       the newest hour in the log, 0 if it is empty · 6 its calls · 7 those of the hour before · from 8 id, calls and
--       end_ms
-- Returns {'restored'} · {'superseded'} if the quota is not being rebuilt in this epoch
-- No TTL: without the calls the quota is lost.
local gone = superseded(KEYS[1], ARGV[1])
if gone then return gone end
local seen = stored(redis.call('HGET', KEYS[3], 'seen_ms'), 0, KEYS[3])
local now = math.max(clock_ms(ARGV[2]), seen, tonumber(ARGV[3]))
redis.call('HSET', KEYS[3], 'seen_ms', int(now))
if tonumber(ARGV[4]) > 0 then redis.call('HSET', KEYS[3], 'blocked_ms', ARGV[4]) end

-- A count that the store still has may be older than the log, or newer.
local function count_at_least(hour, calls)
  local field = 'hour:' .. int(hour)
  local known = stored(redis.call('HGET', KEYS[3], field), -1, KEYS[3])
  if known < tonumber(calls) then redis.call('HSET', KEYS[3], field, calls) end
end

if tonumber(ARGV[5]) > 0 then
  count_at_least(ARGV[5], ARGV[6])
  count_at_least(ARGV[5] - 1, ARGV[7])
end
for at = 8, #ARGV, 3 do
  for number = 1, tonumber(ARGV[at + 1]) do
    redis.call('ZADD', KEYS[2], 'NX', ARGV[at + 2], ARGV[at] .. ':' .. number)
  end
end
-- The new epoch counts its reservations from 0.
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', 0)
redis.call('ZADD', KEYS[2], 0, 'sequence:0')
redis.call('PERSIST', KEYS[2])
return {'restored'}
