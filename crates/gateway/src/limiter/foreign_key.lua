-- Delete a limit's key if another client has replaced it by another type.
-- KEYS  1 the limit's key
-- ARGV  the type that the limit writes
-- Returns {'deleted'} · {'kept'}
-- No TTLs.
local found = redis.call('TYPE', KEYS[1]).ok
if found == ARGV[1] or found == 'none' then return {'kept'} end
redis.call('DEL', KEYS[1])
return {'deleted'}
