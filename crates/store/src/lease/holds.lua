-- Shared by every script that writes on behalf of a lease's holder: `holds` is false for a late write.

-- What a lease says, and the time: the store's, never earlier than the newest time that the lease has seen.
local function read_lease(key, given)
  local lease = redis.call('HMGET', key, 'owner', 'fence', 'until_ms', 'seen_ms')
  local now = math.max(clock_ms(given), tonumber(lease[4] or 0))
  local live = lease[1] and tonumber(lease[3]) > now
  return { owner = lease[1], fence = lease[2], until_ms = tonumber(lease[3] or 0), live = live, now = now }
end

local function holds(key, fence, given)
  local lease = read_lease(key, given)
  return lease.live and lease.fence == fence
end
