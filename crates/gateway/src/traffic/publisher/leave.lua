-- Remove an instance at once, for a clean stop.
-- KEYS  1 instances zset, 2 connections hash, 3 starts hash, 4 connections, 5 requests per second
-- ARGV  instance, now_us ('' = the store's clock)
-- Returns {'left', overwritten foreign keys …}
-- No TTLs: see heartbeat.lua.
claim('zset', KEYS[1])
claim('hash', KEYS[2])
claim('hash', KEYS[3])
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[1])
redis.call('SET', KEYS[4], string.format('%.0f', connections_of(KEYS[1], KEYS[2])))
-- Heartbeats write the requests per second. The last instance leaves no old value behind; one whose lease has ended does
-- not count.
if redis.call('ZCOUNT', KEYS[1], '(' .. int(clock_ms(ARGV[2])), '+inf') == 0 then redis.call('SET', KEYS[5], 0) end
return {'left', unpack(foreign)}
