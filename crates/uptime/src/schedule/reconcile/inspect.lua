-- Read the health of monitors, and whether a change of their state is pending.
-- KEYS  1 marker hash · 2 standing hash · 3 unsettled hash
-- ARGV  epoch, id…
-- Returns {'inspected', for each id: field of the standing hash or '', '1' if a change is pending} ·
--         {'lost', epoch found or ''}
-- No TTLs: it only reads.
local gone = lost(KEYS[1], ARGV[1])
if gone then return gone end
local answer = {'inspected'}
for index = 2, #ARGV do
  answer[#answer + 1] = redis.call('HGET', KEYS[2], ARGV[index]) or ''
  answer[#answer + 1] = redis.call('HEXISTS', KEYS[3], ARGV[index])
end
return answer
