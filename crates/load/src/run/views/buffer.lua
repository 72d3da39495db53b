-- Append a second that is not committed to the database yet (L9).
-- KEYS  1 buffer list, oldest first
-- ARGV  max_len, ttl_ms, entry
-- Returns {'written'}
-- TTL: renewed by every write. The runner keeps the second until its row is committed, so an expired list loses nothing.
redis.call('RPUSH', KEYS[1], ARGV[3])
redis.call('LTRIM', KEYS[1], -tonumber(ARGV[1]), -1)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {'written'}
