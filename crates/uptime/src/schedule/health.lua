-- Shared by the scripts on the schedule. A monitor's standing is one text: generation, lease in ms, fence of its
-- last claim, the slot that was claimed (ms), and the rest, which only Rust reads.

local function split(text)
  return string.match(text, '^(%d+) (%d+) (%d+) (%d+) (.*)$')
end

local function join(generation, lease_ms, fence, slot_ms, rest)
  return generation .. ' ' .. lease_ms .. ' ' .. int(fence) .. ' ' .. int(slot_ms) .. ' ' .. rest
end

-- The store's time in ms, never earlier than this shard has seen.
local function shard_now(marker, given)
  local seen = tonumber(redis.call('HGET', marker, 'seen_ms') or 0) or 0
  local now = clock_ms(given)
  if now <= seen then return seen end
  redis.call('HSET', marker, 'seen_ms', int(now))
  return now
end

-- Scores are unix seconds; milliseconds are their fraction.
local function score(ms)
  return string.format('%.3f', ms / 1000)
end

-- Puts a known monitor under a lease with a new fence. Returns its standing, or nil if it is not known, or is known by
-- something that cannot be read: then it is forgotten, and planned again by the reconciler.
local function lease(leases, marker, standings, id, slot_ms, epoch, now)
  local text = redis.call('HGET', standings, id)
  local generation, lease_ms, _, old_slot_ms, rest = split(text or '')
  if not generation then
    redis.call('ZREM', leases, id)
    redis.call('HDEL', standings, id)
    return nil
  end
  text = join(generation, lease_ms, next_fence(marker, epoch), slot_ms or tonumber(old_slot_ms), rest)
  redis.call('HSET', standings, id, text)
  redis.call('ZADD', leases, int(now + lease_ms), id)
  return text
end
