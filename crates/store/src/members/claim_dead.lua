-- Claim dead incarnations for one node, which then cleans up after them. If the node does not remove them
-- (remove_dead.lua) before its claim ends, another node can claim them, and the first claim number becomes invalid.
-- KEYS  1 live zset · 2 info hash · 3 dead zset (incarnation by end of its claim, ms)
-- ARGV  most, hold_ms, now_us ('' = the store's clock)
-- Returns {'dead', incarnation, node, claim, …}
-- No TTLs: see join.lua.
local now = member_now(KEYS[2], ARGV[3])
for _, incarnation in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', int(now), 'LIMIT', 0, ARGV[1])) do
  redis.call('ZREM', KEYS[1], incarnation)
  redis.call('ZADD', KEYS[3], 0, incarnation)
end
local answer = {'dead'}
for _, incarnation in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', int(now), 'LIMIT', 0, ARGV[1])) do
  if #incarnation == 32 then
    local claim = redis.call('HINCRBY', KEYS[2], 'claims', 1)
    redis.call('HSET', KEYS[2], 'claim:' .. incarnation, claim)
    redis.call('ZADD', KEYS[3], int(now + ARGV[2]), incarnation)
    answer[#answer + 1] = incarnation
    answer[#answer + 1] = redis.call('HGET', KEYS[2], incarnation) or ''
    answer[#answer + 1] = claim
  else
    -- Not a node: another client has added this member.
    redis.call('ZREM', KEYS[3], incarnation)
  end
end
return answer
