-- Allow a request if the log of its window has room. The window starts with the first request (G16).
-- KEYS  1 zset: the score is the time in ms, the member is the same time with a sequence number as its fraction
-- ARGV  cost, least ('' = without a receipt; else the cost), now_us ('' = the store's clock), limit, window_ms
-- Returns {'allowed' | 'denied', 1, remaining, reset_ms, retry_ms}, and with a receipt: how many were allowed, and
--       'ms,first sequence', which is the receipt for them
-- TTL: the end of the window, when no entry of the log counts any longer.
local cost, limit, window_ms = tonumber(ARGV[1]), tonumber(ARGV[4]), tonumber(ARGV[5])
local newest = redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')
local now = math.max(clock_ms(ARGV[3]), tonumber(newest[2] or 0))
local oldest = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
local starts = tonumber(oldest[2] or now)
if now >= starts + window_ms then
  redis.call('DEL', KEYS[1])
  starts = now
end
local count = redis.call('ZCARD', KEYS[1])
local ends = starts + window_ms
if cost > 0 and count + cost > limit then
  return answer({ index = 1, remaining = limit - count, reset = ends - now, retry = ends - now })
end
-- One more than the newest of this millisecond: a number that was given back in the middle is not used again.
local sequence = 0
if tonumber(newest[2]) == now and count > 0 then sequence = (string.match(newest[1], '%.(%d+)$') or 0) + 1 end
for at = sequence, sequence + cost - 1 do
  local member = at == 0 and int(now) or string.format('%.0f.%06d', now, at)
  redis.call('ZADD', KEYS[1], int(now), member)
end
count = count + cost
if cost > 0 then collect_at(KEYS[1], ends, now, ARGV[3]) end
local said = answer({ index = 1, remaining = limit - count, reset = count > 0 and ends - now or 0, retry = 0 })
if ARGV[2] ~= '' then said[6], said[7] = cost, string.format('%.0f,%.0f', now, sequence) end
return said
