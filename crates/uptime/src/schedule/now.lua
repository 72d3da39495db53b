-- Read the store's time, never earlier than the shard has seen.
-- KEYS  1 marker hash
-- ARGV  now_us ('' = the store's clock)
-- Returns {'now', now_ms}
-- No TTL: it only reads.
local seen = stored(redis.call('HGET', KEYS[1], 'seen_ms'), 0)
return {'now', int(math.max(seen, clock_ms(ARGV[1])))}
