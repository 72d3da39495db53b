-- Read the recent messages, if the cache is at the given event.
-- KEYS  1 recent list, 2 range hash
-- ARGV  sequence of the conversation's last event, max length
-- Returns {'messages', whether these are all ('1' | '0'), message (newest first), …} or {'stale'}
-- Changes no TTL.
local range = redis.call('HMGET', KEYS[2], 'sequence', 'whole', 'length')
if range[1] ~= ARGV[1] or redis.call('LLEN', KEYS[1]) ~= tonumber(range[3]) then return {'stale'} end
local answer = {'messages', range[2]}
for _, message in ipairs(redis.call('LRANGE', KEYS[1], 0, ARGV[2] - 1)) do answer[#answer + 1] = message end
return answer
