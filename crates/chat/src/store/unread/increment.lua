-- Add new messages of a conversation to the counters of one user, and notify the user's feed.
-- KEYS  1 held hash, 2 total, 3 unread counter of the conversation
-- ARGV  conversation, member's version, sequence before the messages, sequence of the last one, how many of them count,
--       channel of the feed, user as JSON, conversation as JSON
-- Returns {'written', total} (they are counted, now or before), {'gap'} (the counter does not directly precede them: it
--         must be recounted) or {'missing'} (all counters of the user are lost)
-- No TTLs: see write.lua.
local total = redis.call('HGET', KEYS[1], 'total')
if not total or not string.find(total, '^%d+$') then return {'missing'} end
local held = redis.call('HGET', KEYS[1], ARGV[1]) or ''
local stamp, count, sequence = string.match(held, '^(%d+):(%d+):(%d+)$')
if not stamp then return {'gap'} end
local version, before, last, more = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
if tonumber(stamp) >= last + version then return {'written', total} end
-- Check both: an equal sum can come from another version and another sequence.
if tonumber(sequence) ~= before or tonumber(stamp) ~= before + version then return {'gap'} end
count, total, stamp = int(tonumber(count) + more), int(tonumber(total) + more), int(last + version)
redis.call('HSET', KEYS[1], ARGV[1], stamp .. ':' .. count .. ':' .. int(last), 'total', total)
if more > 0 then
  redis.call('SET', KEYS[3], count)
  redis.call('SET', KEYS[2], total)
  redis.call('PUBLISH', ARGV[6], '{"origin":"","actor":' .. ARGV[7] .. ',"data":{"type":"unread","conversationId":' ..
    ARGV[8] .. ',"unread":' .. count .. ',"total":' .. total .. ',"stamp":' .. stamp .. '}}')
end
return {'written', total}
