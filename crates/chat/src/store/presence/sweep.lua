-- Remove all sockets of a user on a dead node.
-- KEYS  see change.lua
-- ARGV  incarnation, now_us ('' = the store's clock), channel, user as JSON
-- Returns {'offline', version, socket, …}, {'remaining', version, socket, …} or {'unknown'} (there were none)
-- TTL: as in leave.lua.
local gone = {}
local fields = redis.call('HGETALL', KEYS[3])
for i = 1, #fields, 2 do
  if fields[i] ~= 'version' and fields[i + 1] == ARGV[1] then
    redis.call('HDEL', KEYS[3], fields[i])
    gone[#gone + 1] = fields[i]
  end
end
return part(gone, ARGV[3], ARGV[4], ARGV[2])
