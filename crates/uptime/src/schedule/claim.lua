-- Claim due monitors for a worker, those with an expired lease first.
-- KEYS  1 schedule zset · 2 leases zset · 3 marker hash · 4 standing hash · 5 unsettled hash
-- ARGV  epoch, limit, now_us ('' = the store's clock)
-- Returns {'claimed', now_ms, next due_ms or '', number of dropped ids, dropped id…,
--          then for each claim: id, health, '1' if a change is pending} · {'lost', epoch found or ''}
-- No TTLs: the sets are bounded by the number of monitors.
local gone = lost(KEYS[3], ARGV[1])
if gone then return gone end
local now = shard_now(KEYS[3], ARGV[3])
local limit = tonumber(ARGV[2])
local dropped, claims = {}, {}

local function claim(id, slot_ms)
  local text = lease(KEYS[2], KEYS[3], KEYS[4], id, slot_ms, ARGV[1], now)
  if text then
    claims[#claims + 1] = {id, text, redis.call('HEXISTS', KEYS[5], id)}
  else
    dropped[#dropped + 1] = id
  end
end

for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', int(now), 'LIMIT', 0, limit)) do
  redis.call('ZREM', KEYS[1], id)
  claim(id, nil)
end
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', score(now), 'WITHSCORES', 'LIMIT', 0, limit - #claims)
for index = 1, #due, 2 do
  redis.call('ZREM', KEYS[1], due[index])
  -- Another client may have added a monitor that is being checked.
  if not redis.call('ZSCORE', KEYS[2], due[index]) then
    claim(due[index], math.max(0, math.floor(due[index + 1] * 1000 + 0.5)))
  end
end

local next_due_ms = ''
local next_due = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
if next_due[2] then next_due_ms = int(next_due[2] * 1000) end
local answer = {'claimed', int(now), next_due_ms, #dropped}
for _, id in ipairs(dropped) do answer[#answer + 1] = id end
for _, one in ipairs(claims) do
  for _, item in ipairs(one) do answer[#answer + 1] = item end
end
return answer
