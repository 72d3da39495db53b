-- Forget what is at hand of a plan that was edited (L10).
-- KEYS  1 newest version known · 2… caches
-- ARGV  version, ttl_ms
-- Returns {'dropped'}
-- TTL: a loader that read an older version before the edit is long done by then.
local known = redis.call('GET', KEYS[1])
if not known or tonumber(known) < tonumber(ARGV[1]) then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) end
for index = 2, #KEYS do redis.call('DEL', KEYS[index]) end
return {'dropped'}
