-- Count a node's new incarnation as live.
-- KEYS  1 live zset (incarnation by end, ms) · 2 info hash
-- ARGV  incarnation, node, hold_ms, now_us ('' = the store's clock)
-- Returns {'alive', until_ms}
-- No TTLs: both are bounded by the nodes that live, or died and were not swept yet.
local now = member_now(KEYS[2], ARGV[4])
local until_ms = now + ARGV[3]
redis.call('ZADD', KEYS[1], int(until_ms), ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
return {'alive', until_ms}
