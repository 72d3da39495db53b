-- Give out the next fence of a tag.
-- KEYS  1 marker hash
-- ARGV  epoch
-- Returns {'fence', fence} · {'lost', epoch found or ''}
-- No TTL: see mark.lua.
local gone = lost(KEYS[1], ARGV[1])
if gone then return gone end
return {'fence', next_fence(KEYS[1], ARGV[1])}
