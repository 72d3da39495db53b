-- Claim one monitor now, due or not. The result of a worker that is checking it will be refused.
-- KEYS  1 schedule zset · 2 leases zset · 3 marker hash · 4 standing hash · 5 unsettled hash
-- ARGV  epoch, id, now_us ('' = the store's clock)
-- Returns {'claimed', now_ms, health, '1' if a change is pending} · {'unknown'} · {'lost', epoch found or ''}
-- No TTLs: the sets are bounded by the number of monitors.
local gone = lost(KEYS[3], ARGV[1])
if gone then return gone end
local now = shard_now(KEYS[3], ARGV[3])
redis.call('ZREM', KEYS[1], ARGV[2])
local text = lease(KEYS[2], KEYS[3], KEYS[4], ARGV[2], now, ARGV[1], now)
if not text then return {'unknown'} end
return {'claimed', int(now), text, redis.call('HEXISTS', KEYS[5], ARGV[2])}
