-- Read the newest messages, if the list is of this very event.
-- KEYS  1 recent list · 2 range hash
-- ARGV  sequence of the conversation's last event, most
-- Returns {'messages', whether these are all ('1' | '0'), message (newest first), …} · {'unsure'}
-- No TTL is touched.
local range = redis.call('HMGET', KEYS[2], 'sequence', 'whole', 'length')
if range[1] ~= ARGV[1] or redis.call('LLEN', KEYS[1]) ~= tonumber(range[3]) then return {'unsure'} end
local answer = {'messages', range[2]}
for _, message in ipairs(redis.call('LRANGE', KEYS[1], 0, ARGV[2] - 1)) do answer[#answer + 1] = message end
return answer
