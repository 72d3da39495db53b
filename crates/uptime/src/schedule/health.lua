-- Shared by the scripts on the schedule. A field of the standing hash is one text: generation, lease_ms, fence of the
-- last claim, slot_ms that was claimed, and the rest, which only Rust reads.

local function split(text)
  return string.match(text, '^(%d+) (%d+) (%d+) (%d+) (.*)$')
end

local function join(generation, lease_ms, fence, slot_ms, rest)
  return generation .. ' ' .. lease_ms .. ' ' .. int(fence) .. ' ' .. int(slot_ms) .. ' ' .. rest
end

-- The store's time in ms, never earlier than the shard has seen.
local function shard_now(marker, given)
  local seen = stored(redis.call('HGET', marker, 'seen_ms'), 0)
  local now = clock_ms(given)
  if now <= seen then return seen end
  redis.call('HSET', marker, 'seen_ms', int(now))
  return now
end

-- Scores are unix seconds with milliseconds as the fraction.
local function score(ms)
  return string.format('%.3f', ms / 1000)
end

-- Give a monitor a lease with a new fence. Returns its field of the standing hash, or nil if there is none or it cannot be
-- read; then the monitor is removed, and reconciliation plans it again.
local function lease(leases, marker, standing, id, slot_ms, epoch, now)
  local text = redis.call('HGET', standing, id)
  local generation, lease_ms, _, old_slot_ms, rest = split(text or '')
  if not generation then
    redis.call('ZREM', leases, id)
    redis.call('HDEL', standing, id)
    return nil
  end
  text = join(generation, lease_ms, next_fence(marker, epoch), slot_ms or tonumber(old_slot_ms), rest)
  redis.call('HSET', standing, id, text)
  redis.call('ZADD', leases, int(now + lease_ms), id)
  return text
end
