-- Note who watches a test live (L6).
-- KEYS  1 sessions hash
-- ARGV  session id, session, ttl_ms, most
-- Returns {'noted'} · {'full'}
-- TTL: renewed by every watcher that comes or stays; each leaves by itself.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[4]) then
  return {'full'}
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {'noted'}
