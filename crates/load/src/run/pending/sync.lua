-- Make the public list of waiting tests what the database says, and keep what outsiders pushed meanwhile (L7).
-- KEYS  1 list
-- ARGV  number of known entries, those entries as they were read, the new list
-- Returns {'synced', length}
-- No TTL: work waits as long as it takes. Bounded by the runs that wait; what outsiders push is taken in every second.
local known = {}
local count = tonumber(ARGV[1])
for index = 2, #ARGV do known[ARGV[index]] = true end
local newcomers = {}
for _, entry in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
  if not known[entry] then newcomers[#newcomers + 1] = entry end
end
redis.call('DEL', KEYS[1])
for index = count + 2, #ARGV do redis.call('RPUSH', KEYS[1], ARGV[index]) end
for _, entry in ipairs(newcomers) do redis.call('RPUSH', KEYS[1], entry) end
return {'synced', redis.call('LLEN', KEYS[1])}
