-- Add to a counter whose window starts with its first increment.
-- KEYS  1 counter string · 2 end of its window, ms
-- ARGV  by, window_ms, now_us ('' = the store's clock)
-- Returns {'count', count, left_ms}
-- TTL: both keys go when the window ends, when what they say no longer counts.
local window_ms = tonumber(ARGV[2])
local count, ends, now = read_window(KEYS[1], KEYS[2], window_ms, ARGV[3])
count = count + ARGV[1]
write_window(KEYS[1], KEYS[2], count, ends, now, ARGV[3])
return {'count', count, ends - now}
