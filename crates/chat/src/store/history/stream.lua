-- The epoch of a channel's stream. A new stream begins with the epoch `fresh` if there is none, or if the server may have gone
-- back to older data: offsets that were given out since then would be given out again.
local function stream_epoch(history, position, fresh)
  local found = redis.call('HMGET', position, 'epoch', 'server')
  if found[1] and string.find(found[1], '^%w+$') and same_server(found[2]) then return found[1] end
  redis.call('DEL', history, position)
  redis.call('HSET', position, 'epoch', fresh, 'offset', 0, 'server', server)
  return fresh
end
