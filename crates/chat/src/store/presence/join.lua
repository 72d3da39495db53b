-- Add sockets of a user on a node.
-- KEYS  see change.lua
-- ARGV  incarnation, 'opened' | 'restored', max sockets, now_us ('' = the store's clock), channel, user as JSON,
--       socket, …
-- Returns {'online', version} (the user was offline; published), {'restored', version} (the data was lost; not
--         published), {'already', version} or {'full'} (nothing changed)
-- No TTL while a socket is open: PERSIST removes the one that part() set.
local known = redis.call('EXISTS', KEYS[3]) == 1
local before = sockets_open()
local fresh = 0
for i = 7, #ARGV do fresh = fresh + 1 - redis.call('HEXISTS', KEYS[3], ARGV[i]) end
if before + fresh > tonumber(ARGV[3]) then return {'full'} end
for i = 7, #ARGV do
  redis.call('HSET', KEYS[3], ARGV[i], ARGV[1])
  redis.call('SADD', KEYS[2], ARGV[i])
end
if before > 0 then
  see(clock_us(ARGV[4]))
  return {'already', redis.call('HGET', KEYS[3], 'version')}
end
redis.call('PERSIST', KEYS[3])
if ARGV[2] == 'restored' and not known then
  return {'restored', announce('true', '', ARGV[6], ARGV[4])}
end
return {'online', announce('true', ARGV[5], ARGV[6], ARGV[4])}
