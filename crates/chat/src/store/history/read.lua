-- Read the position of a channel and a part of its history.
-- KEYS  1 history list, 2 position hash
-- ARGV  epoch of a new stream, position ttl_ms, 'after' | 'before' an offset, or the 'oldest' | 'newest' publications; offset, limit
-- Returns {'history', epoch, offset of the newest publication, offset of the oldest one that is kept (newest + 1 if none),
--          publication (oldest first), …}
-- TTL: renews that of the position, which clients refer to from now on.
local epoch = stream_epoch(KEYS[1], KEYS[2], ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
local newest = stored(redis.call('HGET', KEYS[2], 'offset'), 0, KEYS[2])
local oldest = math.max(1, newest - redis.call('LLEN', KEYS[1]) + 1)
local offset, limit = tonumber(ARGV[4]), tonumber(ARGV[5])
local first, last = oldest, newest
if ARGV[3] == 'after' then
  first = math.max(oldest, offset + 1)
elseif ARGV[3] == 'before' then
  last = math.min(newest, offset - 1)
end
if ARGV[3] == 'after' or ARGV[3] == 'oldest' then
  last = math.min(last, first + limit - 1)
else
  first = math.max(first, last - limit + 1)
end
local answer = {'history', epoch, string.format('%.0f', newest), string.format('%.0f', oldest)}
if first > last then return answer end
for _, publication in ipairs(redis.call('LRANGE', KEYS[1], first - newest - 1, last - newest - 1)) do
  answer[#answer + 1] = publication
end
return answer
