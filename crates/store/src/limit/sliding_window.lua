-- Allow a request if, in every window, the estimated count of the sliding window stays within the limit. The estimate
-- is the count of the current calendar window, plus the part of the previous one that the sliding window still covers,
-- as if its requests were evenly distributed. It needs two numbers per window, independent of the traffic.
-- KEYS  1 string "seen_ms;limit/window_ms=number of the calendar window,its count,the count of the previous one;…"
-- ARGV  cost, least ('' = without a receipt; else the cost), now_us ('' = the store's clock), then limit and window_ms of
--       each window
-- Returns {'allowed' | 'denied', index of the reported window, remaining, reset_ms, retry_ms}, and with a receipt: how
--       many were allowed, and the time in ms, which is the receipt for them
-- TTL: the end of the next calendar window, when neither count matters any longer.
local cost, clock = tonumber(ARGV[1]), clock_ms(ARGV[3])
local state = redis.call('GET', KEYS[1]) or ''
local now = math.max(clock, tonumber(string.match(state, '^%d+')) or 0)

-- The counts of the calendar window `number` and of the window before it.
local function counts(name, number)
  local stored, count, before = string.match(state, name .. '(%d+),(%d+),(%d+)')
  local age = stored and number - stored
  if age == 0 then return tonumber(count), tonumber(before) end
  if age == 1 then return 0, tonumber(count) end
  return 0, 0
end

-- The time until `cost` fits. Both sides of the comparison are multiplied by window_ms, so that all numbers stay
-- whole.
local function wait(count, before, limit, window_ms, elapsed)
  if before * (window_ms - elapsed) + (count + cost) * window_ms <= limit * window_ms then return 0 end
  local room = limit - count - cost
  if room >= 0 then return window_ms - math.floor(room * window_ms / before) - elapsed end
  return window_ms - elapsed + window_ms - math.floor((limit - cost) * window_ms / count)
end

local windows, denied = {}, false
for at = 4, #ARGV, 2 do
  local limit, window_ms = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local number = math.floor(now / window_ms)
  local elapsed = now - number * window_ms
  local name = ';' .. ARGV[at] .. '/' .. ARGV[at + 1] .. '='
  local count, before = counts(name, number)
  local retry = cost > 0 and wait(count, before, limit, window_ms, elapsed) or 0
  denied = denied or retry > 0
  windows[#windows + 1] =
    { index = #windows + 1, name = name, number = number, count = count, before = before, limit = limit,
      window = window_ms, left = window_ms - elapsed, retry = retry, reset = 0 }
end

local keep_until, written = now, int(now)
for _, window in ipairs(windows) do
  if not denied then window.count = window.count + cost end
  local used = window.before * window.left + window.count * window.window
  window.remaining = math.floor((window.limit * window.window - used) / window.window)
  if window.count > 0 then
    window.reset = window.left + window.window
  elseif window.before > 0 then
    window.reset = window.left
  end
  keep_until = math.max(keep_until, now + window.left + window.window)
  written = written .. string.format('%s%.0f,%.0f,%.0f', window.name, window.number, window.count, window.before)
end
if not denied and cost > 0 then
  redis.call('SET', KEYS[1], written, 'PX', int(keep_until - clock))
end
local said = answer(verdict(windows))
if ARGV[2] ~= '' then said[6], said[7] = cost, int(now) end
return said
