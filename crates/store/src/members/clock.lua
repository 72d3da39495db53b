-- Shared by the scripts on the members of one group. Returns the time, which never goes back: it is at least the latest
-- time that any of these scripts has seen. `info` is a hash of node names by incarnation, with the field `seen_ms`.
local function member_now(info, given)
  local now = math.max(clock_ms(given), stored(redis.call('HGET', info, 'seen_ms'), 0))
  redis.call('HSET', info, 'seen_ms', int(now))
  return now
end
