-- Read the entries of a log after a sequence number.
-- KEYS  1 list, newest first · 2 sequence number of its newest entry
-- ARGV  after (0 = all entries that are kept), most
-- Returns {'entries', newest, number of the first entry returned, entry, …}, oldest first
-- Changes no TTL.
local newest = stored(redis.call('GET', KEYS[2]), 0, KEYS[2])
local kept = redis.call('LLEN', KEYS[1])
if newest == 0 then kept = 0 end
local wanted = math.min(kept, math.max(0, newest - ARGV[1]))
local returned = math.min(wanted, tonumber(ARGV[2]))
local answer = {'entries', newest, newest - wanted + 1}
if returned > 0 then
  local entries = redis.call('LRANGE', KEYS[1], wanted - returned, wanted - 1)
  for index = #entries, 1, -1 do answer[#answer + 1] = entries[index] end
end
return answer
