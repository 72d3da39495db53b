-- Add to the counter of the calendar bucket (an hour, say) that the store's clock is in.
-- KEYS  1 counter of the bucket before the one that the caller believes in · 2 of that one · 3 of the next
-- ARGV  the believed bucket's start in ms, bucket_ms, by, ttl_ms, now_us ('' = the store's clock)
-- Returns {'count', bucket start ms, count} · {'stray', bucket start ms} when it is none of the three
-- TTL: at least ttl_ms from the bucket's end, renewed by no write: nothing is decided on it.
local now = clock_ms(ARGV[5])
local start = now - now % ARGV[2]
local key = KEYS[(start - ARGV[1]) / ARGV[2] + 2]
if not key then return {'stray', start} end
local count = redis.call('INCRBY', key, ARGV[3])
collect_at(key, start + ARGV[2] + ARGV[4], now, ARGV[5])
return {'count', start, count}
