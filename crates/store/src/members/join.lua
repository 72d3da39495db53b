-- Add a new incarnation of a node to the live ones.
-- KEYS  1 live zset (incarnation by end of its lease, ms) · 2 info hash
-- ARGV  incarnation, node, hold_ms, now_us ('' = the store's clock)
-- Returns {'alive', until_ms}
-- No TTLs: the size of both keys is bounded by the live nodes and the dead ones that were not removed yet.
local now = member_now(KEYS[2], ARGV[4])
local until_ms = now + ARGV[3]
redis.call('ZADD', KEYS[1], int(until_ms), ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
return {'alive', until_ms}
