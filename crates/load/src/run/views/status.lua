-- Show the status of a test (L2).
-- KEYS  1 writer · 2 status
-- ARGV  fence, writer_ttl_ms, status, status_ttl_ms
-- Returns {'shown'} · {'late'} when a later conductor writes these keys
-- TTL: renewed with every write, and every few seconds while the test is not over.
local writer = redis.call('GET', KEYS[1])
if writer and (tonumber(writer) or 0) > tonumber(ARGV[1]) then return {'late'} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])
return {'shown'}
