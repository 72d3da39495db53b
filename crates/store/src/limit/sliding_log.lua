-- Allow a request if the log has room in every window that ends now (G17).
-- KEYS  1 zset: the score is the time in ms, the member is the time and a sequence number with leading zeros, so that
--       the newest member sorts last
-- ARGV  cost, least (the smallest part of the cost that may be allowed; '' = the whole cost), now_us ('' = the store's
--       clock), then limit and window_ms of each window
-- Returns {'allowed' | 'denied', index of the reported window, remaining, reset_ms, retry_ms}. If `least` is given,
--       followed by the number of allowed requests, and their receipt: 'ms,first sequence number'. Neither time is longer
--       than the window, so a wait may be up to a millisecond too short
-- TTL: the longest window after the newest request, when no entry of the log counts any longer.
local cost = tonumber(ARGV[1])
local least = tonumber(ARGV[2]) or cost
local newest = redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')
local newest_ms = tonumber(newest[2] or 0)
-- A request counts from the end of its millisecond, so that it counts for at least a window. Rounded down, it could count
-- for up to a millisecond less, and a window could have more requests than its limit.
local clock = clock_us(ARGV[3]) / 1000
local time = math.max(math.ceil(clock), newest_ms)
local now = math.max(math.floor(clock), newest_ms - 1)
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
    -- The request fits when the `over` oldest entries of the window have left it.
    local last = redis.call('ZRANGE', KEYS[1], held - count + over - 1, held - count + over - 1, 'WITHSCORES')
    retry = math.min(window_ms, tonumber(last[2]) + window_ms - now)
  end
  local reset = count > 0 and math.min(window_ms, newest_ms + window_ms - now) or 0
  windows[#windows + 1] =
    { index = #windows + 1, count = count, limit = limit, window = window_ms,
      remaining = limit - count, reset = reset, retry = retry }
end
local reported = verdict(windows)
if granted < least then granted = 0 end
-- One more than the newest sequence number of this millisecond. Numbers below it that were given back are not
-- used again.
local sequence = newest_ms == time and (string.match(newest[1], '%-(%d+)$') or -1) + 1 or 0
for at = sequence, sequence + granted - 1 do
  redis.call('ZADD', KEYS[1], int(time), string.format('%.0f-%09d', time, at))
end
if granted > 0 then
  reported.remaining = reported.remaining - granted
  reported.reset = reported.window
  collect_at(KEYS[1], time + longest, now, ARGV[3])
end
local result = answer(reported)
if ARGV[2] ~= '' then result[6], result[7] = granted, string.format('%.0f,%.0f', time, sequence) end
return result
