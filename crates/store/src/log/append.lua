-- Append entries to a log that keeps only the newest ones.
-- KEYS  1 list, newest first · 2 sequence number of its newest entry
-- ARGV  most, ttl_ms, now_us ('' = the store's clock), entry…
-- Returns {'appended', sequence number of the last entry}
-- TTL: each append sets it on both keys, so that the list never outlives its sequence number. A lost sequence starts
-- again from the clock in µs. This is above every number it has ever returned, because no writer appends one entry per
-- microsecond for long.
local now = clock_us(ARGV[3])
local newest = stored(redis.call('GET', KEYS[2]), 0, KEYS[2])
if newest == 0 then
  newest = now
  redis.call('DEL', KEYS[1])
end
for index = 4, #ARGV do redis.call('LPUSH', KEYS[1], ARGV[index]) end
newest = newest + #ARGV - 3
redis.call('LTRIM', KEYS[1], 0, ARGV[1] - 1)
redis.call('SET', KEYS[2], int(newest))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return {'appended', newest}
