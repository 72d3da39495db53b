-- Let a request pass while, in every window, the count of this calendar window plus the part of the one
-- before that a sliding window still covers stays within the limit. Two numbers per window, whatever the
-- traffic; the one before is taken as evenly spread.
-- KEYS  1 hash: seen_ms, and per window "limit/window_ms": the window's number, its count, the count before
-- ARGV  cost, now_us ('' = the store's clock), then limit and window_ms of each window
-- Returns {'allowed' | 'denied', index of the window told, remaining, reset_ms, retry_ms}
-- TTL: the end of the calendar window after this one, when neither number counts any more.
local cost = tonumber(ARGV[1])
local now = math.max(clock_ms(ARGV[2]), tonumber(redis.call('HGET', KEYS[1], 'seen_ms') or 0))

local function load_counts(name, number)
  local stored = redis.call('HMGET', KEYS[1], name .. ':number', name .. ':count', name .. ':before')
  local age = stored[1] and number - stored[1]
  if age == 0 then return tonumber(stored[2]), tonumber(stored[3]) end
  if age == 1 then return 0, tonumber(stored[2]) end
  return 0, 0
end

-- How long until `cost` fits. Products stay whole numbers: the sum over limit × window is compared, not a
-- fraction of a request.
local function wait(count, before, limit, window_ms, elapsed)
  if before * (window_ms - elapsed) + (count + cost) * window_ms <= limit * window_ms then return 0 end
  local room = limit - count - cost
  if room >= 0 then return window_ms - math.floor(room * window_ms / before) - elapsed end
  return window_ms - elapsed + window_ms - math.floor((limit - cost) * window_ms / count)
end

local windows = {}
for at = 3, #ARGV, 2 do
  local limit, window_ms = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local number = math.floor(now / window_ms)
  local elapsed = now - number * window_ms
  local name = ARGV[at] .. '/' .. ARGV[at + 1]
  local count, before = load_counts(name, number)
  local retry = cost > 0 and wait(count, before, limit, window_ms, elapsed) or 0
  windows[#windows + 1] = {
    index = #windows + 1, name = name, number = number, count = count, before = before, window = window_ms,
    retry = retry, limit = limit, elapsed = elapsed,
    used = before * (window_ms - elapsed) + count * window_ms,
    remaining = 0, reset = 0,
  }
end

local denied = false
for _, window in ipairs(windows) do denied = denied or window.retry > 0 end
local keep_until = now
for _, window in ipairs(windows) do
  if not denied then
    window.count = window.count + cost
    window.used = window.used + cost * window.window
  end
  window.remaining = math.floor((window.limit * window.window - window.used) / window.window)
  local left = window.window - window.elapsed
  if window.count > 0 then window.reset = left + window.window elseif window.before > 0 then window.reset = left end
  keep_until = math.max(keep_until, now + left + window.window)
end
if not denied and cost > 0 then
  for _, window in ipairs(windows) do
    redis.call('HSET', KEYS[1], 'seen_ms', int(now), window.name .. ':number', int(window.number),
      window.name .. ':count', int(window.count), window.name .. ':before', int(window.before))
  end
  collect_at(KEYS[1], keep_until, now, ARGV[2])
end
return answer(verdict(windows))
