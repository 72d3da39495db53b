-- Delete keys that are not of their type: nothing can be read from them or written to them.
-- KEYS  1… the keys
-- ARGV  the type of each
-- Returns {'repaired', number of each deleted key, …}
-- No TTL is touched.
local answer = {'repaired'}
for index, key in ipairs(KEYS) do
  local found = redis.call('TYPE', key).ok
  if found ~= 'none' and found ~= ARGV[index] then
    redis.call('DEL', key)
    answer[#answer + 1] = index
  end
end
return answer
