-- Remove a monitor from the schedule, with its views.
-- KEYS  1 schedule zset · 2 leases zset · 3 standing hash · 4 unsettled hash · 5 status hash · 6 incident hash ·
--       7 retry string
-- ARGV  id, 'paused' to keep the last result, 'deleted' to delete it
-- Returns {'removed'}
-- TTL: the status keeps the one of its last result.
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[1])
redis.call('HDEL', KEYS[4], ARGV[1])
redis.call('DEL', KEYS[6], KEYS[7])
if ARGV[2] ~= 'deleted' and redis.call('TYPE', KEYS[5]).ok == 'hash' then
  redis.call('HSET', KEYS[5], 'state', 'PAUSED')
else
  redis.call('DEL', KEYS[5])
end
return {'removed'}
