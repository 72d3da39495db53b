-- Restore calls from the call log, in chunks. The last chunk sets the marker, which makes the quota usable. A call that
-- exists is left unchanged: the log may be older. If the store loses its data between two chunks, the token is lost, too,
-- and the marker is not set.
-- KEYS  1 marker hash · 2 calls zset · 3 state hash
-- ARGV  1 now_us ('' = the store's clock) · 2 longest window_ms · 3 newest time in the log, ms · 4 blocked until, ms ·
--       5 number of the newest hour in the log, 0 if it is empty · 6 its calls · 7 those of the hour before · 8 token ·
--       9 'first' or 'more' · 10 epoch in the last chunk, else '' · from 11 id, calls and end_ms
-- Returns {'restored'} · {'again'}
-- TTL: one longest window after the end of the newest call.
local token = 'restoring:' .. ARGV[8]
if ARGV[9] == 'first' then
  redis.call('HSET', KEYS[3], token, 1)
elseif redis.call('HEXISTS', KEYS[3], token) == 0 then
  return {'again'}
end
local seen = tonumber(redis.call('HGET', KEYS[3], 'seen_ms') or 0)
local now = math.max(clock_ms(ARGV[1]), seen, tonumber(ARGV[3]))
redis.call('HSET', KEYS[3], 'seen_ms', int(now))
if tonumber(ARGV[4]) > 0 then redis.call('HSET', KEYS[3], 'blocked_ms', ARGV[4]) end
if tonumber(ARGV[5]) > 0 then
  redis.call('HSETNX', KEYS[3], 'hour:' .. int(ARGV[5]), ARGV[6])
  redis.call('HSETNX', KEYS[3], 'hour:' .. int(ARGV[5] - 1), ARGV[7])
end
for at = 11, #ARGV, 3 do
  for number = 1, tonumber(ARGV[at + 1]) do
    redis.call('ZADD', KEYS[2], 'NX', ARGV[at + 2], ARGV[at] .. ':' .. number)
  end
end
local newest = redis.call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')
if newest[2] then collect_at(KEYS[2], newest[2] + ARGV[2], now, ARGV[1]) end
if ARGV[10] == '' then return {'restored'} end

local found = tonumber(redis.call('HGET', KEYS[1], 'epoch') or -1)
if found < tonumber(ARGV[10]) then redis.call('HSET', KEYS[1], 'epoch', ARGV[10], 'n', 0) end
for _, field in ipairs(redis.call('HKEYS', KEYS[3])) do
  if string.find(field, '^restoring:') then redis.call('HDEL', KEYS[3], field) end
end
return {'restored'}
