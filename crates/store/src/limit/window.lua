-- Shared by the scripts that count one window, which starts with its first increment. The counter is a plain string
-- that other clients can read. A second key stores the end of the window, so that decisions do not depend on when the
-- TTL takes effect.

-- The count, the end of the window and the time. If the end of the window is unknown, another client has written the
-- counter: the rest of its TTL is the rest of its window. If it has no TTL, because that client failed between INCR and
-- EXPIRE, a window starts now.
local function read_window(counter, ends_key, window_ms, given)
  local count = stored(redis.call('GET', counter), 0, counter)
  local ends = stored(redis.call('GET', ends_key), 0, ends_key)
  local now = math.max(clock_ms(given), ends - window_ms)
  if ends == 0 and count > 0 then
    local left = redis.call('PTTL', counter)
    ends = now + (left > 0 and math.min(left, window_ms) or window_ms)
  elseif now >= ends then
    count, ends = 0, now + window_ms
  end
  return count, ends, now
end

local function write_window(counter, ends_key, count, ends, now, given)
  redis.call('SET', counter, int(count))
  redis.call('SET', ends_key, int(ends))
  collect_at(counter, ends, now, given)
  collect_at(ends_key, ends, now, given)
end
