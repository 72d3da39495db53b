-- Drop a cold endpoint: its counts are added to those of `other`, so that all sums stay the same.
-- KEYS  1 marker, 2 set of endpoints
--       then of the endpoint: requests, errors, times, sum, count, limited, server errors, latency of each hour
--       then of `other` the same
-- ARGV  epoch, name, the number of requests that the endpoint is expected to have
-- Returns {'dropped'}, also if it was dropped before
--       {'kept'} if the endpoint had a request meanwhile, or a key holds a value of another client
--       {'lost', epoch found or ''}
-- TTL: histograms expire 26 hours after their last write, when they are not read any more.
if not is_marker(KEYS[1]) or not is_a('set', KEYS[2]) then return {'kept'} end
local gone = lost(KEYS[1], ARGV[1])
if gone then return gone end
if redis.call('SISMEMBER', KEYS[2], ARGV[2]) == 0 then return {'dropped'} end

local keys = (#KEYS - 2) / 2
local kinds = {'string', 'string', 'zset', 'string', 'string', 'string', 'string'}
local counters = {1, 2, 5, 6, 7}
for index = 3, #KEYS do
  if not is_a(kinds[(index - 3) % keys + 1] or 'hash', KEYS[index]) then return {'kept'} end
end
for _, index in ipairs(counters) do
  for _, key in ipairs({KEYS[2 + index], KEYS[2 + index + keys]}) do
    if not is_count(redis.call('GET', key) or '0') then return {'kept'} end
  end
end
for _, key in ipairs({KEYS[6], KEYS[6 + keys]}) do
  if not string.find(redis.call('GET', key) or '0', '^%d+%.?%d*$') then return {'kept'} end
end
if (redis.call('GET', KEYS[3]) or '0') ~= ARGV[3] then return {'kept'} end

for _, index in ipairs(counters) do
  local count = redis.call('GET', KEYS[2 + index])
  if count then redis.call('INCRBY', KEYS[2 + index + keys], count) end
end
local sum = redis.call('GET', KEYS[6])
if sum then redis.call('INCRBYFLOAT', KEYS[6 + keys], sum) end
for index = 10, 2 + keys do
  local fields = redis.call('HGETALL', KEYS[index])
  for field = 1, #fields, 2 do
    if is_count(fields[field + 1]) then add_field(KEYS[index + keys], fields[field], fields[field + 1]) end
  end
  if #fields > 0 then redis.call('EXPIRE', KEYS[index + keys], 26 * 3600) end
end
for index = 3, 2 + keys do redis.call('DEL', KEYS[index]) end
redis.call('SREM', KEYS[2], ARGV[2])
return {'dropped'}
