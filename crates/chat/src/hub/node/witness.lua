-- Record that a process looks at a shard, and check that the shard still has its previous look.
-- KEYS  1 witness zset (process by the time of its last look, ms)
-- ARGV  process, score of its previous look ('' = none), keep_ms, now_us ('' = the store's clock)
-- Returns {'here', score, server} · {'lost', score, server} if the previous look is missing or older than the process
--         knows: the data of the shard was lost, or is that of an earlier time. `server` is the history of the server.
-- No TTL: looks of processes that ended are deleted after keep_ms.
local found = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or '')
local before = tonumber(ARGV[2])
local score = math.max(clock_ms(ARGV[4]), (found or 0) + 1, (before or 0) + 1)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', int(score - ARGV[3]))
redis.call('ZADD', KEYS[1], int(score), ARGV[1])
if before and (not found or found < before) then return {'lost', int(score), server} end
return {'here', int(score), server}
