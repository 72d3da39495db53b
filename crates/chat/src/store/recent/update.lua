-- Apply the next event of a conversation to the cache. A cache that misses an event or has lost a message is dropped.
-- KEYS  1 recent list, 2 range hash
-- ARGV  sequence of the event, 'append' | 'replace' | 'remove' | 'advance', message or '', how the JSON of the message starts (its
--       id), max length, ttl_ms
-- Returns {'updated'}, {'newer'} (the cache already has the event) or {'missing'} (the cache does not exist, or was
--         dropped)
-- TTL: as in fill.lua.
local held = stored(redis.call('HGET', KEYS[2], 'sequence'), -1, KEYS[2])
local sequence, action, max = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[5])
if held >= sequence then return {'newer'} end
local length = stored(redis.call('HGET', KEYS[2], 'length'), -1, KEYS[2])
if held ~= sequence - 1 or redis.call('LLEN', KEYS[1]) ~= length then
  redis.call('DEL', KEYS[1], KEYS[2])
  return {'missing'}
end
if action == 'append' then
  if redis.call('LPUSH', KEYS[1], ARGV[3]) > max then
    redis.call('LTRIM', KEYS[1], 0, max - 1)
    redis.call('HSET', KEYS[2], 'whole', '0')
  end
elseif action ~= 'advance' then
  -- An older message is not in the list.
  for index, message in ipairs(redis.call('LRANGE', KEYS[1], 0, max - 1)) do
    if string.sub(message, 1, #ARGV[4]) == ARGV[4] then
      if action == 'replace' then redis.call('LSET', KEYS[1], index - 1, ARGV[3]) else redis.call('LREM', KEYS[1], 1, message) end
      break
    end
  end
end
redis.call('HSET', KEYS[2], 'sequence', ARGV[1], 'length', redis.call('LLEN', KEYS[1]))
redis.call('PEXPIRE', KEYS[1], ARGV[6])
redis.call('PEXPIRE', KEYS[2], ARGV[6])
return {'updated'}
