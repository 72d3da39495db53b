-- Remove a client from the presence of a channel.
-- KEYS  1 clients hash, 2 expiry zset
-- ARGV  client
-- Returns {'removed'}
-- Changes no TTL.
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
return {'removed'}
