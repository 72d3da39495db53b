-- Record that a user stopped typing.
-- KEYS  1 typing flag, 2 typists zset
-- ARGV  user
-- Returns {'stopped'} or {'quiet'} (the user was not typing)
-- Changes no TTL.
redis.call('DEL', KEYS[1])
if redis.call('ZREM', KEYS[2], ARGV[1]) == 1 then return {'stopped'} end
return {'quiet'}
