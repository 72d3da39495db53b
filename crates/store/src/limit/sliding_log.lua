-- Let a request pass while the log has room in every window that ends now (G17).
-- KEYS  1 zset: score the ms, member the ms and a sequence, with leading zeros so that the newest sorts last
-- ARGV  cost, least ('' = all of the cost), now_us ('' = the store's clock), then limit and window_ms of each window
-- Returns {'allowed' | 'denied', index of the window told, remaining, reset_ms, retry_ms}, and if there is a least,
--       how many were let pass, and 'ms,first sequence', which is the receipt for them
-- TTL: one longest window after the newest request, when none of the log counts any more.
local cost = tonumber(ARGV[1])
local least = tonumber(ARGV[2]) or cost
local newest = redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')
local newest_ms = tonumber(newest[2] or 0)
local now = math.max(clock_ms(ARGV[3]), newest_ms)
local longest = 0
for at = 4, #ARGV, 2 do longest = math.max(longest, tonumber(ARGV[at + 1])) end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', int(now - longest))
local held = redis.call('ZCARD', KEYS[1])

local windows, granted = {}, cost
for at = 4, #ARGV, 2 do
  local limit, window_ms = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local count = redis.call('ZCOUNT', KEYS[1], '(' .. int(now - window_ms), '+inf')
  granted = math.min(granted, limit - count)
  local over, retry = count + least - limit, 0
  if cost > 0 and over > 0 then
    -- The request fits when as many of the window's oldest entries have left it as it is over.
    local last = redis.call('ZRANGE', KEYS[1], held - count + over - 1, held - count + over - 1, 'WITHSCORES')
    retry = tonumber(last[2]) + window_ms - now
  end
  local reset = count > 0 and newest_ms + window_ms - now or 0
  windows[#windows + 1] =
    { index = #windows + 1, count = count, limit = limit, window = window_ms,
      remaining = limit - count, reset = reset, retry = retry }
end
local told = verdict(windows)
if granted < least then granted = 0 end
-- One more than the newest of this millisecond: a number that was given back in the middle is not used again.
local sequence = newest_ms == now and (string.match(newest[1], '%-(%d+)$') or -1) + 1 or 0
for at = sequence, sequence + granted - 1 do
  redis.call('ZADD', KEYS[1], int(now), string.format('%.0f-%09d', now, at))
end
if granted > 0 then
  told.remaining = told.remaining - granted
  told.reset = told.window
  collect_at(KEYS[1], now + longest, now, ARGV[3])
end
local said = answer(told)
if ARGV[2] ~= '' then said[6], said[7] = granted, string.format('%.0f,%.0f', now, sequence) end
return said
