-- Write the final status of a run and delete the keys that only a running one has (L2 L6 L11).
-- KEYS  1 writer, 2 status, 3 current, 4 buffer, 5 sessions
-- ARGV  fence, writer_ttl_ms, status, status_ttl_ms, sessions_ttl_ms
-- Returns {'written'}, or {'fenced'} when a later coordinator has written these keys
-- TTLs: the documented ones, counted from the end of the run.
if stored(redis.call('GET', KEYS[1]), 0, KEYS[1]) > tonumber(ARGV[1]) then return {'fenced'} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])
redis.call('DEL', KEYS[3], KEYS[4])
redis.call('PEXPIRE', KEYS[5], ARGV[5])
return {'written'}
