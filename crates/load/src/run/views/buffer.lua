-- Show a second that is on its way into the database (L9).
-- KEYS  1 buffer list, oldest first
-- ARGV  most, ttl_ms, entry
-- Returns {'shown'}
-- TTL: only a view; the runner keeps the second until its row is committed.
redis.call('RPUSH', KEYS[1], ARGV[3])
redis.call('LTRIM', KEYS[1], -tonumber(ARGV[1]), -1)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {'shown'}
