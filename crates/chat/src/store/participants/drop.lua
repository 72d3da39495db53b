-- Drop the cache of participants after a change.
-- KEYS  1 participants set, 2 floor
-- ARGV  sequence of the change, ttl_ms
-- Returns {'dropped'}
-- TTL: see fill.lua.
redis.call('DEL', KEYS[1])
local floor = math.max(stored(redis.call('GET', KEYS[2]), 0, KEYS[2]), tonumber(ARGV[1]))
redis.call('SET', KEYS[2], string.format('%.0f', floor), 'PX', ARGV[2])
return {'dropped'}
