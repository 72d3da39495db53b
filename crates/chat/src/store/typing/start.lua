-- Say that a user is typing in a conversation, until then.
-- KEYS  1 typing flag · 2 typists zset (user by end, ms)
-- ARGV  user, hold_ms, now_us ('' = the store's clock)
-- Returns {'started'} · {'again'}
-- TTL: both go when the newest start is over; every earlier one is over before.
local now = clock_ms(ARGV[3])
local ends = redis.call('ZSCORE', KEYS[2], ARGV[1])
redis.call('SET', KEYS[1], '1', 'PX', ARGV[2])
redis.call('ZADD', KEYS[2], int(now + ARGV[2]), ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
if ends and tonumber(ends) > now then return {'again'} end
return {'started'}
