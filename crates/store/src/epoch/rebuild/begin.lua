-- Begin to rebuild a tag in a new epoch: remove the old epoch from its marker, and delete the keys that the old epoch
-- left behind.
-- Changes nothing if the tag has the epoch `limit` or a later one, or is being rebuilt in such an epoch.
-- KEYS  1 marker hash · 2… keys to delete
-- ARGV  new epoch ('' = only read the marker), limit
-- Returns {'marker', epoch or '', epoch of the rebuild in progress or '', 'current' · 'rewound' if another history of the
--         server wrote the marker}
-- No TTL: a missing marker means that the tag is lost.
local is_hash = redis.call('TYPE', KEYS[1]).ok == 'hash'

-- A number that another client wrote counts as missing if it is so large that there is no higher epoch.
local function read(field)
  local text = is_hash and redis.call('HGET', KEYS[1], field) or ''
  local number = tonumber(text)
  if number and number < 2097151 and text == string.format('%.0f', number) then return text end
  return ''
end

local epoch, rebuilding = read('epoch'), read('rebuilding')
local current = same_server(is_hash and redis.call('HGET', KEYS[1], 'server')) and 'current' or 'rewound'
local limit = tonumber(ARGV[2])
if ARGV[1] == '' or (tonumber(epoch) or -1) >= limit or (tonumber(rebuilding) or -1) >= limit then
  return {'marker', epoch, rebuilding, current}
end
for index = is_hash and 2 or 1, #KEYS do redis.call('DEL', KEYS[index]) end
redis.call('HDEL', KEYS[1], 'epoch')
redis.call('HSET', KEYS[1], 'rebuilding', ARGV[1], 'server', server)
return {'marker', '', ARGV[1], 'current'}
