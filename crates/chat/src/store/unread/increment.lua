-- Add new messages of a conversation to the counters of its members, and notify their feeds.
-- KEYS  for each member: held hash, total, unread counter of the conversation
-- ARGV  conversation, sequence before the messages, sequence of the last one, conversation as JSON, then for each member:
--       the member's version, how many of the messages count, how many of these mention the member, channel of the feed, user as JSON
-- Returns {'counted', number of a member whose counter does not directly precede the messages or is lost, so that it must be
--         recounted, …}
-- No TTLs: see write.lua.
local conversation, before, last = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local answer, counters, held_by, feeds = {'counted'}, {}, {}, {}
for member = 1, #KEYS / 3 do
  local key, at = member * 3 - 2, member * 5
  -- A value of another client in one member's key must not stop the others.
  local held = redis.pcall('HMGET', KEYS[key], 'total', conversation)
  local total = string.match(held[1] or '', '^%d+$')
  local stamp, count, sequence, mentions = string.match(held[2] or '', '^(%d+):(%d+):(%d+):(%d+)$')
  local version, more = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  if not total or not stamp then
    answer[#answer + 1] = member
  elseif tonumber(stamp) < last + version then
    -- Check both: an equal sum can come from another version and another sequence.
    if tonumber(sequence) ~= before or tonumber(stamp) ~= before + version then
      answer[#answer + 1] = member
    else
      count, total, stamp = int(count + more), int(total + more), int(last + version)
      mentions = int(mentions + ARGV[at + 2])
      held_by[#held_by + 1] = {KEYS[key], stamp .. ':' .. count .. ':' .. ARGV[3] .. ':' .. mentions, total}
      if more > 0 then
        local size = #counters
        counters[size + 1], counters[size + 2] = KEYS[key + 1], total
        counters[size + 3], counters[size + 4] = KEYS[key + 2], count
        feeds[#feeds + 1] = {ARGV[at + 3], '{"origin":"","actor":' .. ARGV[at + 4] ..
          ',"data":{"type":"unread","conversationId":' .. ARGV[4] .. ',"unread":' .. count .. ',"mentions":' .. mentions ..
          ',"total":' .. total .. ',"stamp":' .. stamp .. '}}'}
      end
    end
  end
end
-- The hashes last: a counter whose hash was not written is written again.
if #counters > 0 then redis.call('MSET', unpack(counters)) end
for _, held in ipairs(held_by) do redis.call('HSET', held[1], conversation, held[2], 'total', held[3]) end
for _, feed in ipairs(feeds) do redis.call('PUBLISH', feed[1], feed[2]) end
return answer
