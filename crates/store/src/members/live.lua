-- List the live incarnations and their nodes.
-- KEYS  1 live zset · 2 info hash
-- ARGV  now_us ('' = the store's clock)
-- Returns {'live', incarnation, node, …}
-- No TTLs: see join.lua.
local now = member_now(KEYS[2], ARGV[1])
local answer = {'live'}
for _, incarnation in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. int(now), '+inf')) do
  answer[#answer + 1] = incarnation
  answer[#answer + 1] = redis.call('HGET', KEYS[2], incarnation) or ''
end
return answer
