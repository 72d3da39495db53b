-- Hold a lease for longer. Once its time is up it is over, even if nobody has taken it yet: others may have
-- read that and acted on it.
-- KEYS  1 lease hash
-- ARGV  fence, hold_ms, now_us ('' = the store's clock)
-- Returns {'renewed', until_ms} · {'over'}
-- TTL: the lease's own end.
local lease = read_lease(KEYS[1], ARGV[3])
if not lease.live or lease.fence ~= ARGV[1] then return {'over'} end
local until_ms = lease.now + ARGV[2]
redis.call('HSET', KEYS[1], 'until_ms', int(until_ms), 'seen_ms', int(lease.now))
collect_at(KEYS[1], until_ms, lease.now, ARGV[3])
return {'renewed', until_ms}
