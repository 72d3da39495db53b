-- Take an instance out at once, for a clean stop.
-- KEYS  1 instances zset · 2 connections hash · 3 starts hash · 4 current
-- ARGV  instance
-- Returns {'left'}
-- No TTLs: see beat.lua.
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[1])
local sum = 0
for _, count in ipairs(redis.call('HVALS', KEYS[2])) do sum = sum + count end
redis.call('SET', KEYS[4], string.format('%.0f', sum))
return {'left'}
