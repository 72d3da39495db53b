-- Apply the next event of a conversation to the cache. If the cache misses an event, or the event changes a message,
-- the cache is dropped.
-- KEYS  1 recent list, 2 range hash
-- ARGV  sequence of the event, 'append' | 'advance' | 'invalidate', message or '', max length, ttl_ms
-- Returns {'updated'}, {'dropped'} or {'ignored'} (there is no cache, or it is newer)
-- TTL: as in fill.lua.
local held = stored(redis.call('HGET', KEYS[2], 'sequence'), -1, KEYS[2])
local sequence = tonumber(ARGV[1])
if held < 0 or held >= sequence then return {'ignored'} end
if held ~= sequence - 1 or ARGV[2] == 'invalidate' then
  redis.call('DEL', KEYS[1], KEYS[2])
  return {'dropped'}
end
if ARGV[2] == 'append' then
  local max = tonumber(ARGV[4])
  local length = redis.call('LPUSH', KEYS[1], ARGV[3])
  if length > max then
    redis.call('LTRIM', KEYS[1], 0, max - 1)
    length = max
    redis.call('HSET', KEYS[2], 'whole', '0')
  end
  redis.call('HSET', KEYS[2], 'length', length)
end
redis.call('HSET', KEYS[2], 'sequence', ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
redis.call('PEXPIRE', KEYS[2], ARGV[5])
return {'updated'}
