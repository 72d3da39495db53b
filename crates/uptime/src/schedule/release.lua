-- Release a claim without a result.
-- KEYS  1 schedule zset · 2 leases zset · 3 marker hash · 4 standing hash
-- ARGV  epoch, id, fence, next_ms
-- Returns {'released'} · {'superseded'} if the claim has expired and was taken over · {'lost', epoch found or ''}
-- No TTLs: the sets are bounded by the number of monitors.
local gone = lost(KEYS[3], ARGV[1])
if gone then return gone end
local text = redis.call('HGET', KEYS[4], ARGV[2])
if not text then return {'superseded'} end
local _, _, fence = split(text)
if fence ~= ARGV[3] or redis.call('ZREM', KEYS[2], ARGV[2]) == 0 then return {'superseded'} end
redis.call('ZADD', KEYS[1], score(ARGV[4]), ARGV[2])
return {'released'}
