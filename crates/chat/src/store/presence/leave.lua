-- Remove a socket of a user. With the socket '', only a user who is online without a socket is changed.
-- KEYS  see change.lua
-- ARGV  socket, now_us ('' = the store's clock), channel, user as JSON, version of the user's last change that the node
--       knows
-- Returns {'offline', version[, socket]} (it was the last one; published), {'remaining', version, socket},
--         {'unknown'} (it was not open) or {'lost'} (Redis lost the last change, and perhaps sockets on other nodes;
--         nothing changed)
-- TTL: the hash of an offline user only keeps versions in order, which the clock also does after a day.
local gone = {}
if redis.call('HDEL', KEYS[3], ARGV[1]) == 1 then gone = {ARGV[1]} end
if #gone == 0 and last_version() < tonumber(ARGV[5]) then return {'lost'} end
return part(gone, ARGV[3], ARGV[4], ARGV[2])
