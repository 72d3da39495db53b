-- Read the usage of a quota.
-- KEYS  as in quota.lua
-- ARGV  …, from 5 limit and window_ms of each window
-- Returns {'quota', now_ms, blocked until ms or 0, calls in flight, new foreign calls, then for each window the
--          calls that occupy it and when one more fits} · {'hour', …} · {'lost', …}
-- Sets no TTL; deletes calls that no window counts any more.
local gone = quota_lost()
if gone then return gone end
local now = quota_now()
local elsewhere = other_hour(now)
if elsewhere then return elsewhere end
delete_old(now, 5)
local foreign = take_foreign(now, 5)
local blocked = stored(redis.call('HGET', KEYS[3], 'blocked_ms'), 0, KEYS[3])
local in_flight = ended_after(now)
local answer = {'quota', now, blocked > now and blocked or 0, in_flight, foreign}
for at = 5, #ARGV, 2 do
  local limit, period = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local taken = ended_after(now - period)
  local fits = now
  if taken >= limit then
    local last = redis.call('ZREVRANGE', KEYS[2], limit - 1, limit - 1, 'WITHSCORES')
    fits = math.min(now, tonumber(last[2])) + period
  end
  answer[#answer + 1] = taken
  answer[#answer + 1] = fits
end
return answer
