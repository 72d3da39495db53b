-- Find out who rebuilds a shard, and in which epoch; begin it where nobody does: what is left of an earlier one goes.
-- KEYS  1 schedule zset · 2 leases zset · 3 marker hash · 4 standing hash
-- ARGV  the epoch that is lost (0 = not known), a new epoch ('' = only look)
-- Returns {'done', epoch} when it was rebuilt since · {'going', epoch} · {'gone'} when nobody has begun
-- No TTLs: they are bounded by the monitors that exist.
local lost = tonumber(ARGV[1])
local found = tonumber(redis.call('HGET', KEYS[3], 'epoch') or 0) or 0
if found > lost then return {'done', int(found)} end
local going = tonumber(redis.call('HGET', KEYS[3], 'rebuilding') or 0) or 0
if going > lost then return {'going', int(going)} end
if ARGV[2] == '' then return {'gone'} end
redis.call('DEL', KEYS[1], KEYS[2], KEYS[4])
redis.call('HDEL', KEYS[3], 'epoch')
redis.call('HSET', KEYS[3], 'rebuilding', ARGV[2])
return {'going', ARGV[2]}
