-- Restore calls from the call log to a quota that is being rebuilt, in chunks. A call that exists is left unchanged: the
-- log may be older.
-- KEYS  1 marker hash · 2 calls zset · 3 state hash
-- ARGV  1 epoch · 2 now_us ('' = the store's clock) · 3 longest window_ms · 4 newest time in the log, ms · 5 blocked
--       until, ms · 6 number of the newest hour in the log, 0 if it is empty · 7 its calls · 8 those of the hour before ·
--       from 9 id, calls and end_ms
-- Returns {'restored'} · {'superseded'} if the quota is not being rebuilt in this epoch
-- TTL: one longest window after the end of the newest call.
local gone = superseded(KEYS[1], ARGV[1])
if gone then return gone end
local seen = tonumber(redis.call('HGET', KEYS[3], 'seen_ms') or 0)
local now = math.max(clock_ms(ARGV[2]), seen, tonumber(ARGV[4]))
redis.call('HSET', KEYS[3], 'seen_ms', int(now))
if tonumber(ARGV[5]) > 0 then redis.call('HSET', KEYS[3], 'blocked_ms', ARGV[5]) end
if tonumber(ARGV[6]) > 0 then
  redis.call('HSETNX', KEYS[3], 'hour:' .. int(ARGV[6]), ARGV[7])
  redis.call('HSETNX', KEYS[3], 'hour:' .. int(ARGV[6] - 1), ARGV[8])
end
for at = 9, #ARGV, 3 do
  for number = 1, tonumber(ARGV[at + 1]) do
    redis.call('ZADD', KEYS[2], 'NX', ARGV[at + 2], ARGV[at] .. ':' .. number)
  end
end
local newest = redis.call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')
if newest[2] then collect_at(KEYS[2], newest[2] + ARGV[3], now, ARGV[2]) end
return {'restored'}
