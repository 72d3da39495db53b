-- Fill the cache of participants, unless they were read before their last change.
-- KEYS  1 participants set, 2 floor
-- ARGV  sequence at which they were read, ttl_ms, user, …
-- Returns {'filled'} or {'outdated'}
-- TTL: the cache can expire at any time. The floor outlives every fill that was in progress when it was set: a fill
-- takes seconds.
if stored(redis.call('GET', KEYS[2]), 0, KEYS[2]) > tonumber(ARGV[1]) then return {'outdated'} end
redis.call('DEL', KEYS[1])
for i = 3, #ARGV, 1000 do
  redis.call('SADD', KEYS[1], unpack(ARGV, i, math.min(i + 999, #ARGV)))
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {'filled'}
