-- Say whether a fence still holds its lease. A script that writes for a holder asks the same with `holds`.
-- KEYS  1 lease hash
-- ARGV  fence, now_us ('' = the store's clock)
-- Returns {'holds'} · {'over'}
-- No TTL: it only reads.
if holds(KEYS[1], ARGV[1], ARGV[2]) then return {'holds'} end
return {'over'}
