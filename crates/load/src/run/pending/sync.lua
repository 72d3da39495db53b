-- Replace the public list of pending runs by the queue of the database, and keep what was pushed since it was read (L7).
-- KEYS  1 list
-- ARGV  number of entries read, those entries, the new entries
-- Returns {'synced', length}
-- No TTL: a run stays in the queue until it starts. The list is bounded by the pending runs; pushed entries are imported
-- every second.
local known = {}
local count = tonumber(ARGV[1])
for index = 2, #ARGV do known[ARGV[index]] = true end
local pushed = {}
for _, entry in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
  if not known[entry] then pushed[#pushed + 1] = entry end
end
redis.call('DEL', KEYS[1])
for index = count + 2, #ARGV do redis.call('RPUSH', KEYS[1], ARGV[index]) end
for _, entry in ipairs(pushed) do redis.call('RPUSH', KEYS[1], entry) end
return {'synced', redis.call('LLEN', KEYS[1])}
