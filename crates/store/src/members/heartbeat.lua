-- Renew the lease of an incarnation. An expired lease cannot be renewed: the node must join as a new incarnation.
-- KEYS  1 live zset · 2 info hash
-- ARGV  incarnation, hold_ms, now_us ('' = the store's clock)
-- Returns {'alive', until_ms} · {'dead'}
-- No TTLs: see join.lua.
local now = member_now(KEYS[2], ARGV[3])
local ends = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not ends or tonumber(ends) <= now then return {'dead'} end
local until_ms = now + ARGV[2]
redis.call('ZADD', KEYS[1], int(until_ms), ARGV[1])
return {'alive', until_ms}
