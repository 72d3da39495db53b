-- Follow the conversation by one event, if the list is just one behind. It is dropped where it is not, and
-- where the event changes a message: what cannot be told to be right is not kept.
-- KEYS  1 recent list · 2 range hash
-- ARGV  sequence of the event, 'append' | 'advance' | 'invalidate', message or '', most, ttl_ms
-- Returns {'updated'} · {'dropped'} · {'ignored'} there is no list, or a later one
-- TTL: as in fill.lua.
local held = tonumber(redis.call('HGET', KEYS[2], 'sequence') or -1) or -1
local sequence = tonumber(ARGV[1])
if held < 0 or held >= sequence then return {'ignored'} end
if held ~= sequence - 1 or ARGV[2] == 'invalidate' then
  redis.call('DEL', KEYS[1], KEYS[2])
  return {'dropped'}
end
if ARGV[2] == 'append' then
  local most = tonumber(ARGV[4])
  local length = redis.call('LPUSH', KEYS[1], ARGV[3])
  if length > most then
    redis.call('LTRIM', KEYS[1], 0, most - 1)
    length = most
    redis.call('HSET', KEYS[2], 'whole', '0')
  end
  redis.call('HSET', KEYS[2], 'length', length)
end
redis.call('HSET', KEYS[2], 'sequence', ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
redis.call('PEXPIRE', KEYS[2], ARGV[5])
return {'updated'}
