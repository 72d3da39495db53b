-- Delete the cached parts of a plan that was edited or deleted (L10).
-- KEYS  1 newest version, 2.. cached parts
-- ARGV  version, ttl_ms
-- Returns {'invalidated'}
-- TTL: longer than any node takes to load an older version that it began to read before the edit.
if stored(redis.call('GET', KEYS[1]), -1, KEYS[1]) < tonumber(ARGV[1]) then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) end
for index = 2, #KEYS do redis.call('DEL', KEYS[index]) end
return {'invalidated'}
