-- Delete keys that do not have the expected type, because every command on them would fail.
-- KEYS  1… the keys
-- ARGV  the expected type of each key; '' deletes the key in any case
-- Returns {'repaired', position of each deleted key in KEYS, …}
-- Changes no TTL.
local answer = {'repaired'}
for index, key in ipairs(KEYS) do
  local found = redis.call('TYPE', key).ok
  if found ~= 'none' and found ~= ARGV[index] then
    redis.call('DEL', key)
    answer[#answer + 1] = index
  end
end
return answer
