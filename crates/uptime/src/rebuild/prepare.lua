-- Begin to rebuild a shard in a new epoch: what is left of an earlier one goes, once.
-- KEYS  1 schedule zset · 2 leases zset · 3 marker hash · 4 standing hash
-- ARGV  epoch
-- Returns {'prepared'} · {'done', epoch found} when it is of this epoch or a later one
-- No TTLs: they are bounded by the monitors that exist.
local found = tonumber(redis.call('HGET', KEYS[3], 'epoch') or -1)
if found >= tonumber(ARGV[1]) then return {'done', int(found)} end
if redis.call('HGET', KEYS[3], 'rebuilding') ~= ARGV[1] then
  redis.call('DEL', KEYS[1], KEYS[2], KEYS[4])
  redis.call('HDEL', KEYS[3], 'epoch')
  redis.call('HSET', KEYS[3], 'rebuilding', ARGV[1])
end
return {'prepared'}
