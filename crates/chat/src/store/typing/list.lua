-- List the users who are typing, and remove those who stopped.
-- KEYS  1 typists zset
-- ARGV  now_us ('' = the store's clock)
-- Returns {'typing', user, left_ms, …}
-- Changes no TTL.
local now = clock_ms(ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', int(now))
local answer = {'typing'}
local typists = redis.call('ZRANGE', KEYS[1], 0, 999, 'WITHSCORES')
for i = 1, #typists, 2 do
  answer[#answer + 1] = typists[i]
  -- Another client may have written a later time.
  answer[#answer + 1] = math.min(tonumber(typists[i + 1]) - now, 60000)
end
return answer
