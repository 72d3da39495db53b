-- Write one second of a run: current metrics, status, and a sample of each timeline (L1 L2 L3).
-- KEYS  1 writer, 2 current, 3 status, 4 tps, 5 response_time, 6 active_users, 7 error_rate
-- ARGV  fence, writer_ttl_ms, current, current_ttl_ms, status, status_ttl_ms, at_ms, timeline_ttl_ms, one member per timeline
-- Returns {'written'}, or {'fenced'} when a later coordinator has written these keys
-- TTLs: all are renewed every second while the run is active; the shortest is 10 s. Samples older than the TTL of a
-- timeline are removed, which bounds its length.
if stored(redis.call('GET', KEYS[1]), 0, KEYS[1]) > tonumber(ARGV[1]) then return {'fenced'} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])
redis.call('SET', KEYS[3], ARGV[5], 'PX', ARGV[6])
local oldest = string.format('%.0f', tonumber(ARGV[7]) - tonumber(ARGV[8]))
for index = 4, 7 do
  redis.call('ZADD', KEYS[index], ARGV[7], ARGV[index + 5])
  redis.call('ZREMRANGEBYSCORE', KEYS[index], '-inf', '(' .. oldest)
  redis.call('PEXPIRE', KEYS[index], ARGV[8])
end
return {'written'}
