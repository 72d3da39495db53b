-- Take a lease that is free, or whose holder's time is up. A holder that takes again has its own renewed.
-- KEYS  1 lease hash · 2 the tag's marker
-- ARGV  owner, hold_ms, epoch, now_us ('' = the store's clock)
-- Returns {'taken', fence, until_ms} · {'held', owner, left_ms} · {'lost', epoch found or ''}
-- TTL: the lease's own end. Gone and over mean the same: free.
local gone = lost(KEYS[2], ARGV[3])
if gone then return gone end
local lease = read_lease(KEYS[1], ARGV[4])
if lease.live and lease.owner ~= ARGV[1] then
  return {'held', lease.owner, lease.until_ms - lease.now}
end
local fence = lease.live and lease.fence or int(next_fence(KEYS[2], ARGV[3]))
local until_ms = lease.now + ARGV[2]
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'fence', fence, 'until_ms', int(until_ms), 'seen_ms', int(lease.now))
collect_at(KEYS[1], until_ms, lease.now, ARGV[4])
return {'taken', tonumber(fence), until_ms}
