-- Give a lease back before its time is up.
-- KEYS  1 lease hash
-- ARGV  fence, now_us ('' = the store's clock)
-- Returns {'released'} · {'over'}
-- No TTL to set: the lease is deleted.
if not holds(KEYS[1], ARGV[1], ARGV[2]) then return {'over'} end
redis.call('DEL', KEYS[1])
return {'released'}
