-- Add failed items to the list of the current hour, newest first.
-- KEYS  1–3 lists of the hour before the caller's hour, the caller's hour, and the next
-- ARGV  now_us ('' = the store's clock), number of the caller's hour, ttl_ms, max_len, then ids
-- Returns {'written'} · {'hour', the store's hour}
-- TTL: as documented, from the newest failure. The items themselves are in the database.
local hour = math.floor(clock_ms(ARGV[1]) / 3600000)
local at = hour - ARGV[2] + 2
if at < 1 or at > 3 then return {'hour', hour} end
for id = 5, #ARGV do redis.call('LPUSH', KEYS[at], ARGV[id]) end
redis.call('LTRIM', KEYS[at], 0, ARGV[4] - 1)
redis.call('PEXPIRE', KEYS[at], ARGV[3])
return {'written'}
