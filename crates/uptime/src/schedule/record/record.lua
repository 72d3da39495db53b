-- Record one result: the health of the monitor, its next check, and the views that clients read (U2 U3 U4).
-- KEYS  1 schedule zset · 2 leases zset · 3 marker hash · 4 standing hash · 5 unsettled hash · 6 status hash ·
--       7 incident hash · 8 retry string
-- ARGV  1 epoch · 2 id · 3 generation · 4 fence · 5 next_ms · 6 health · 7 pending change or '' ·
--       8 status_ttl_ms · 9 retry count or '' · 10 retry_ttl_ms · 11 failure_count or '' if it is not down ·
--       12 first_failure_at · 13 last_failure_at · 14 short form of the result · 15… field, value of the status
-- Returns {'recorded', views that another client had replaced …} · {'removed'} · {'edited'} · {'stale'} if the claim expired or was used ·
--         {'lost', epoch found or ''}
-- TTLs: status longer than two intervals and a timeout, retry longer than all retries together. Every write renews them,
-- so they only expire if no worker checks the monitor. No decision reads them.
local gone = lost(KEYS[3], ARGV[1])
if gone then return gone end
local id = ARGV[2]
local text = redis.call('HGET', KEYS[4], id)
if not text then return {'removed'} end
local generation, lease_ms, fence, slot_ms = split(text)
if generation ~= ARGV[3] then return {'edited'} end
if fence ~= ARGV[4] or redis.call('ZREM', KEYS[2], id) == 0 then return {'stale'} end

redis.call('HSET', KEYS[4], id, join(generation, lease_ms, fence, slot_ms, ARGV[6]))
redis.call('ZADD', KEYS[1], score(ARGV[5]), id)
if ARGV[7] ~= '' then redis.call('HSET', KEYS[5], id, ARGV[7]) end

-- A view that another client has replaced is overwritten. (SET and DEL of the retry work on any type.)
local answer = {'recorded'}
local function replace(key)
  redis.call('DEL', key)
  answer[#answer + 1] = key
end
local recent = redis.pcall('HGET', KEYS[6], 'recent')
if type(recent) == 'table' then
  replace(KEYS[6])
  recent = nil
end
recent = recent and recent .. ' ' .. ARGV[14] or ARGV[14]
local _, spaces = string.gsub(recent, ' ', '')
if spaces >= 30 then recent = string.sub(recent, string.find(recent, ' ', 1, true) + 1) end
redis.call('HSET', KEYS[6], 'recent', recent, unpack(ARGV, 15))
redis.call('PEXPIRE', KEYS[6], ARGV[8])

if ARGV[9] == '' then
  redis.call('DEL', KEYS[8])
else
  redis.call('SET', KEYS[8], ARGV[9], 'PX', ARGV[10])
end

if ARGV[11] == '' then
  redis.call('DEL', KEYS[7])
else
  local found = redis.call('TYPE', KEYS[7]).ok
  if found ~= 'hash' and found ~= 'none' then replace(KEYS[7]) end
  redis.call('HSET', KEYS[7], 'failure_count', ARGV[11], 'first_failure_at', ARGV[12], 'last_failure_at', ARGV[13])
  local alerted = redis.call('HGET', KEYS[7], 'alerted')
  if alerted ~= '0' and alerted ~= '1' then
    if alerted then answer[#answer + 1] = KEYS[7] end
    redis.call('HSET', KEYS[7], 'alerted', '0')
  end
end
return answer
