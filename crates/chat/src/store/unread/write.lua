-- Write unread counts of one user and their total. A counter with a newer stamp is kept.
-- KEYS  1 held hash, 2 total, 3… unread counter of each conversation
-- ARGV  'partial' | 'full', then for each counter: conversation, stamp, count, sequence, mentions
-- Returns {'written', total} or {'missing'} (the scope is partial, and the other counters are lost)
-- No TTLs: counters stay until the messages are read, and the hash marks them as complete.
local total = tonumber(string.match(redis.call('HGET', KEYS[1], 'total') or '', '^%d+$') or '')
if not total then
  if ARGV[1] == 'partial' then return {'missing'} end
  total = 0
end
for i = 3, #KEYS do
  local at = (i - 3) * 5 + 2
  local conversation, stamp, count = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local held = redis.call('HGET', KEYS[1], conversation) or '-1:0'
  local held_stamp, held_count = string.match(held, '^(-?%d+):(%d+)')
  if not held_stamp then held_stamp, held_count = -1, 0 end
  if stamp > tonumber(held_stamp) then
    total = total + count - tonumber(held_count)
    redis.call('HSET', KEYS[1], conversation, int(stamp) .. ':' .. int(count) .. ':' .. ARGV[at + 3] .. ':' .. ARGV[at + 4])
  else
    count = tonumber(held_count)
  end
  -- Written even if unchanged, to overwrite values of other clients.
  if count > 0 then redis.call('SET', KEYS[i], int(count)) else redis.call('DEL', KEYS[i]) end
end
redis.call('HSET', KEYS[1], 'total', int(total))
redis.call('SET', KEYS[2], int(total))
return {'written', int(total)}
