-- Record that a user is typing in a conversation.
-- KEYS  1 typing flag, 2 typists zset (user by expiry, ms)
-- ARGV  user, ttl_ms, now_us ('' = the store's clock)
-- Returns {'started'} or {'again'}
-- TTL: both keys expire with the newest start; every earlier one expires before.
local now = clock_ms(ARGV[3])
local ends = redis.call('ZSCORE', KEYS[2], ARGV[1])
redis.call('SET', KEYS[1], '1', 'PX', ARGV[2])
redis.call('ZADD', KEYS[2], int(now + ARGV[2]), ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
if ends and tonumber(ends) > now then return {'again'} end
return {'started'}
