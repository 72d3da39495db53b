-- Add or renew the session of a live client (L6).
-- KEYS  1 sessions hash
-- ARGV  session id, session, ttl_ms, max_len
-- Returns {'added'}, or {'full'}
-- TTL: renewed by every session every few seconds while the run is active; after its end, the rest of the documented time.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[4]) then
  return {'full'}
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {'added'}
