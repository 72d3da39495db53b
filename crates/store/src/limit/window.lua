-- Shared by the scripts on a counter of one window that starts with its first increment: the counter is the
-- plain string that others read, and beside it stands when the window ends, so that no decision waits for
-- the TTL to fire.

-- The count so far, the window's end and the time. A counter whose end is unknown was written by
-- another client: its TTL is its window, and one without a TTL (INCR happened, EXPIRE did not) gets a window now.
local function read_window(counter, ends_key, window_ms, given)
  local count = tonumber(redis.call('GET', counter) or 0)
  local ends = tonumber(redis.call('GET', ends_key) or 0)
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
