-- List the clients of a channel.
-- KEYS  1 clients hash, 2 expiry zset
-- ARGV  now_us ('' = the store's clock)
-- Returns {'clients', info, …}
-- Changes no TTL.
expire(KEYS[1], KEYS[2], clock_ms(ARGV[1]))
local answer = {'clients'}
for _, info in ipairs(redis.call('HVALS', KEYS[1])) do answer[#answer + 1] = info end
return answer
