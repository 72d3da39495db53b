-- Add to the counter of the calendar bucket (an hour, say) that the store's clock is in.
-- KEYS  1 counter of the bucket before the one that the caller believes in · 2 of that one · 3 of the next
-- ARGV  the believed bucket's start in ms, bucket_ms, by, keep_ms, now_us ('' = the store's clock)
-- Returns {'count', bucket start ms, count} · {'stray', bucket start ms} when it is none of the three
-- TTL: keep_ms after the bucket's start, the same moment with every write; keep_ms is at least a bucket, so
-- that no count goes before its bucket is over.
local now = clock_ms(ARGV[5])
local start = now - now % ARGV[2]
local key = KEYS[(start - ARGV[1]) / ARGV[2] + 2]
if not key then return {'stray', start} end
local count = redis.call('INCRBY', key, ARGV[3])
collect_at(key, start + ARGV[4], now, ARGV[5])
return {'count', start, count}
