-- Count a socket of a user as closed.
-- KEYS  see change.lua
-- ARGV  socket, now_us ('' = the store's clock), channel, user as JSON
-- Returns {'offline', version, socket} it was the last one, and everybody was told · {'still', version, socket} ·
--         {'unknown'} it was not open
-- TTL: an offline user's hash only keeps versions in order, which the clock does as well after a day.
local gone = {}
if redis.call('HDEL', KEYS[3], ARGV[1]) == 1 then gone = {ARGV[1]} end
return part(gone, ARGV[3], ARGV[4], ARGV[2])
