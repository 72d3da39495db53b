-- Write the status of a run (L2).
-- KEYS  1 writer, 2 status
-- ARGV  fence, writer_ttl_ms, status, status_ttl_ms
-- Returns {'written'}, or {'fenced'} when a later coordinator has written these keys
-- TTL: renewed by every write, every few seconds until the run ends.
if stored(redis.call('GET', KEYS[1]), 0, KEYS[1]) > tonumber(ARGV[1]) then return {'fenced'} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])
return {'written'}
