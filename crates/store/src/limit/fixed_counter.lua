-- Allow a request if the counter of its window stays within the limit (C6).
-- KEYS  1 counter string · 2 end of its window, ms
-- ARGV  cost, now_us ('' = the store's clock), limit, window_ms
-- Returns {'allowed' | 'denied', 1, remaining, reset_ms, retry_ms}
-- TTL: both keys expire at the end of the window, when they are no longer needed.
local cost, limit, window_ms = tonumber(ARGV[1]), tonumber(ARGV[3]), tonumber(ARGV[4])
local count, ends, now = read_window(KEYS[1], KEYS[2], window_ms, ARGV[2])
if cost > 0 and count + cost > limit then
  return answer({ index = 1, remaining = limit - count, reset = ends - now, retry = ends - now })
end
if cost > 0 then
  count = count + cost
  write_window(KEYS[1], KEYS[2], count, ends, now, ARGV[2])
end
return answer({ index = 1, remaining = limit - count, reset = count > 0 and ends - now or 0, retry = 0 })
