-- Give a claim back without a result.
-- KEYS  1 schedule zset · 2 leases zset · 3 marker hash · 4 standing hash
-- ARGV  epoch, id, fence, next_ms
-- Returns {'released'} · {'over'} when the claim is another's by now · {'lost', epoch found or ''}
-- No TTLs: the sets are bounded by the monitors that exist.
local gone = lost(KEYS[3], ARGV[1])
if gone then return gone end
local text = redis.call('HGET', KEYS[4], ARGV[2])
if not text then return {'over'} end
local _, _, fence = split(text)
if fence ~= ARGV[3] or redis.call('ZREM', KEYS[2], ARGV[2]) == 0 then return {'over'} end
redis.call('ZADD', KEYS[1], score(ARGV[4]), ARGV[2])
return {'released'}
