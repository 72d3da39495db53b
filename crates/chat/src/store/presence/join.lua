-- Add sockets of a user on a node.
-- KEYS  see change.lua
-- ARGV  incarnation, what the node knows (below), max sockets, now_us ('' = the store's clock), channel, user as JSON,
--       socket, …
--       The node knows the version of the user's last change if the user has other sockets there; '0' if not; 'ask' if
--       not, and the answer should be 'unknown' if Redis does not know the user either.
-- Returns {'online', version} (the user was offline; published), {'restored', version} (the user was online, but Redis
--         lost this; not published), {'already', version}, {'unknown'} or {'full'} (nothing changed)
-- No TTL while a socket is open: PERSIST removes the one that part() set.
if ARGV[2] == 'ask' and redis.call('EXISTS', KEYS[3]) == 0 then return {'unknown'} end
local before = sockets_open()
local fresh = 0
for i = 7, #ARGV do fresh = fresh + 1 - redis.call('HEXISTS', KEYS[3], ARGV[i]) end
if before + fresh > tonumber(ARGV[3]) then return {'full'} end
for i = 7, #ARGV do
  redis.call('HSET', KEYS[3], ARGV[i], ARGV[1])
  redis.call('SADD', KEYS[2], ARGV[i])
end
if before > 0 then
  -- Redis may have evicted the state, but not the sockets.
  redis.call('SET', KEYS[1], 'true')
  see(clock_us(ARGV[4]))
  return {'already', int(last_version())}
end
redis.call('PERSIST', KEYS[3])
-- A greater version means that the user was set offline after the last change that the node knows.
local announced = tonumber(ARGV[2]) or 0
if announced > 0 and last_version() <= announced then
  redis.call('HSET', KEYS[3], 'version', int(announced))
  return {'restored', announce('true', '', ARGV[6], ARGV[4])}
end
return {'online', announce('true', ARGV[5], ARGV[6], ARGV[4])}
