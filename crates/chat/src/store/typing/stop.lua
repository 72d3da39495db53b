-- Say that a user has stopped typing.
-- KEYS  1 typing flag · 2 typists zset
-- ARGV  user
-- Returns {'stopped'} · {'quiet'} the user was not typing
-- No TTL is touched.
redis.call('DEL', KEYS[1])
if redis.call('ZREM', KEYS[2], ARGV[1]) == 1 then return {'stopped'} end
return {'quiet'}
