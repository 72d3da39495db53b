-- Fill the set of members, whole, unless they were read before their last change.
-- KEYS  1 participants set · 2 floor
-- ARGV  sequence that they were read at, ttl_ms, user, …
-- Returns {'filled'} · {'outdated'}
-- TTL: a cache's own. The floor outlives every fill that was under way when it was set: those take seconds.
if (tonumber(redis.call('GET', KEYS[2]) or 0) or 0) > tonumber(ARGV[1]) then return {'outdated'} end
redis.call('DEL', KEYS[1])
for i = 3, #ARGV, 1000 do
  redis.call('SADD', KEYS[1], unpack(ARGV, i, math.min(i + 999, #ARGV)))
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {'filled'}
