-- Confirm that a pending change is in the database.
-- KEYS  1 unsettled hash · 2 incident hash
-- ARGV  id, fence of the change, '1' if alerts were sent for the incident
-- Returns {'confirmed'} · {'already'}
-- No TTLs: a monitor has at most one pending change.
if ARGV[3] == '1' and redis.call('TYPE', KEYS[2]).ok == 'hash' then redis.call('HSET', KEYS[2], 'alerted', '1') end
local change = redis.call('HGET', KEYS[1], ARGV[1])
if not change or string.match(change, '^%d+') ~= ARGV[2] then return {'already'} end
redis.call('HDEL', KEYS[1], ARGV[1])
return {'confirmed'}
