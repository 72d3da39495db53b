-- Renew the lease of an instance with its connections and requests, remove dead instances, and write the gauges over
-- all instances (G1 G2 G5 G6).
-- KEYS  1 instances zset (by end of lease, ms), 2 connections hash, 3 starts hash, 4 seconds hash
--       5 connections, 6 max connections, 7 requests per second, 8 max requests per second
-- ARGV  instance, 'first' or 'next', connections, max connections since the last heartbeat, lease_ms,
--       now_us ('' = the store's clock), then age_ms and count of requests since the last heartbeat …
-- Returns {'beat', now_ms, overwritten foreign keys …}
-- TTL: only for the seconds, which are read for two minutes and kept for five. The sets are bounded by the live
-- instances; a dead one is removed by the next heartbeat of any other.
claim('zset', KEYS[1])
for index = 2, 4 do claim('hash', KEYS[index]) end
local instance, connections, peak, lease_ms = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
-- The newest lease tells the time of the last heartbeat; the clock never runs backwards from it.
local clock = clock_ms(ARGV[6])
-- No lease ends days from now: another client has written it, and it would stop the clock.
if redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. int(clock + 3 * 86400000), '+inf') > 0 then
  foreign[#foreign + 1] = KEYS[1]
end
local newest = redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')
local now = math.max(clock, tonumber(newest[2] or 0) - lease_ms)

-- Raises a gauge to a higher value.
local function raise(key, value)
  local held = redis.pcall('GET', key)
  if type(held) == 'string' and is_count(held) then
    if value > tonumber(held) then redis.call('SET', key, int(value)) end
  else
    if held then foreign[#foreign + 1] = key end
    redis.call('SET', key, int(value))
  end
end

for _, dead in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', int(now))) do
  redis.call('ZREM', KEYS[1], dead)
  if dead ~= instance then
    redis.call('HDEL', KEYS[2], dead)
    redis.call('HDEL', KEYS[3], dead)
  end
end
-- Startup is when the first live instance sends its first heartbeat. A late heartbeat is not a startup.
if ARGV[2] == 'first' and redis.call('ZCARD', KEYS[1]) == 0 then
  redis.call('SET', KEYS[6], 0)
  redis.call('SET', KEYS[8], 0)
end
redis.call('ZADD', KEYS[1], int(now + lease_ms), instance)
redis.call('HSET', KEYS[2], instance, int(connections))
if not is_count(redis.call('HGET', KEYS[3], instance) or '') then
  redis.call('HSET', KEYS[3], instance, int(now))
end

local sum = connections_of(KEYS[1], KEYS[2])
redis.call('SET', KEYS[5], int(sum))
raise(KEYS[6], sum - connections + peak)

local second = math.floor(now / 1000)
for at = 7, #ARGV, 2 do
  local seen = math.floor((now - ARGV[at]) / 1000)
  if seen > second - 120 then add_field(KEYS[4], int(seen), ARGV[at + 1]) end
end
-- A second counts when it is over; late heartbeats still add to it.
local busiest = 0
local seconds = redis.call('HGETALL', KEYS[4])
for at = 1, #seconds, 2 do
  local counted = is_count(seconds[at]) and is_count(seconds[at + 1])
  local age = counted and second - seconds[at] or 120
  if age >= 120 then
    redis.call('HDEL', KEYS[4], seconds[at])
  elseif age > 0 then
    busiest = math.max(busiest, tonumber(seconds[at + 1]))
  end
end
redis.call('EXPIRE', KEYS[4], 300)
redis.call('SET', KEYS[7], redis.call('HGET', KEYS[4], int(second - 1)) or 0)
raise(KEYS[8], busiest)
return {'beat', now, unpack(foreign)}
