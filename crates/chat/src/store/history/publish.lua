-- Publish to a channel: number the publication, append it to the history, and send it to the nodes with subscribers.
-- KEYS  1 history list, 2 position hash, 3 result of a publication with the same idempotency key (optional)
-- ARGV  history size (0 = the publication is neither numbered nor kept), history ttl_ms, position ttl_ms, epoch of a new
--       stream, pub/sub channel, the fields of the publication after its offset ('"data":…}'), ttl_ms of the result
-- Returns {'published' or 'repeated', offset, epoch}; 0 and '' if the publication is not numbered
-- TTL: the history expires after its last publication. The position lives longer: without it, a new epoch begins. The result is
--      kept for the documented time.
if KEYS[3] then
  local offset, epoch = string.match(redis.call('GET', KEYS[3]) or '', '^(%d+):(%w*)$')
  if offset then return {'repeated', offset, epoch} end
end
local offset, epoch, publication = '0', '', '{' .. ARGV[6]
if tonumber(ARGV[1]) > 0 then
  epoch = stream_epoch(KEYS[1], KEYS[2], ARGV[4])
  local last = stored(redis.call('HGET', KEYS[2], 'offset'), 0, KEYS[2])
  offset = string.format('%.0f', last + 1)
  publication = '{"offset":' .. offset .. ',' .. ARGV[6]
  redis.call('HSET', KEYS[2], 'offset', offset)
  redis.call('RPUSH', KEYS[1], publication)
  redis.call('LTRIM', KEYS[1], -tonumber(ARGV[1]), -1)
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  redis.call('PEXPIRE', KEYS[2], ARGV[3])
end
redis.call('PUBLISH', ARGV[5], '{"epoch":"' .. epoch .. '","offset":' .. offset .. ',"pub":' .. publication .. '}')
if KEYS[3] then redis.call('SET', KEYS[3], offset .. ':' .. epoch, 'PX', ARGV[7]) end
return {'published', offset, epoch}
