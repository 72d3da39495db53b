-- Start-time fair queueing of the sharers of a quota: runs, and clients of the API. The turn of a sharer is a number
-- that grows by calls / weight. While sharers with earlier turns wait, the calls that they are entitled to are kept for
-- them. A sharer waits under a lease: for LEASE_MS after it asked, and after the time at which it is due to come back.
-- After a call it keeps its place for a moment, so that the pause between two calls does not cost it its share. So a sharer
-- that is gone delays the others only briefly, and calls that no sharer waits for are granted at once.
-- Turns hash: sharer → "turn weight asked_ms due_ms calls", with calls = 0 if the sharer does not wait.

local LEASE_MS = 3000
-- The longest such moment.
local MAX_AWAY_MS = 1000
-- A sharer that is away for so long is forgotten.
local FORGET_MS = 10000
-- How soon a sharer asks again if calls are free that others are entitled to.
local RETRY_MS = 100
-- How many calls a sharer may catch up that others made between two of its calls: its share of the smallest window, or of
-- this time, but at least some. One that was idle gets none.
local MAX_BEHIND_MS = 60000
local MIN_BEHIND = 4
-- More sharers than this have one turn together.
local MAX_SHARERS = 1000

-- Whether a sharer has asked lately, or is expected now.
local function is_present(now, asked, due)
  return now < asked + LEASE_MS or (due <= now and now < due + LEASE_MS)
end

-- How long one call takes in the long run, under the tightest window.
local function ms_per_call(first)
  local most = 0
  for at = first, #ARGV, 2 do most = math.max(most, ARGV[at + 1] / ARGV[at]) end
  return most
end

-- Returns the sharers that are present, by name, and their number. Deletes those that are gone.
local function read_sharers(now)
  local all, sharers, count = redis.call('HGETALL', KEYS[4]), {}, 0
  for at = 1, #all, 2 do
    local turn, weight, asked, due, calls = string.match(all[at + 1], '^(%S+) (%d+) (%d+) (%d+) (%d+)$')
    turn, weight, asked, due = tonumber(turn), tonumber(weight), tonumber(asked), tonumber(due)
    if not turn or weight == 0 or now >= math.max(asked, due) + FORGET_MS then
      redis.call('HDEL', KEYS[4], all[at])
    else
      count = count + 1
      local present = is_present(now, asked, due)
      sharers[all[at]] = {turn = turn, weight = weight, asked = asked, calls = tonumber(calls), present = present}
    end
  end
  return sharers, count
end

-- The latest turn that was granted. Fails if another client has written it.
local function last_turn()
  local whole, part = string.match(redis.call('HGET', KEYS[3], 'turn') or '0', '^([^.]*)(.*)$')
  if not string.find(part, '^%.?%d*$') then error('foreign value: ' .. KEYS[3]) end
  return tonumber(int(stored(whole, 0, KEYS[3])) .. part)
end

-- Returns the name under which a sharer is kept, its turn, and how many calls others are entitled to before it. `first` is
-- the first window in ARGV.
local function read_turns(name, weight, now, first)
  local base = last_turn()
  local sharers, count = read_sharers(now)
  local weights, mine = weight, base
  for other, sharer in pairs(sharers) do
    if other ~= name and sharer.present then weights = weights + sharer.weight end
  end
  local call_ms = ms_per_call(first)
  local share = math.min(smallest_limit(first), MAX_BEHIND_MS / call_ms) / weights
  local function least_turn(of) return base - math.max(share, MIN_BEHIND / of) end
  local known = sharers[name]
  if known then mine = math.max(known.turn, known.present and least_turn(weight) or base) end
  if not known and count >= MAX_SHARERS then name = 'others' end
  local owed = 0
  for other, sharer in pairs(sharers) do
    -- A sharer that makes one call after another comes back within the time that its share takes.
    local back = sharer.asked + math.min(MAX_AWAY_MS, weights * call_ms / sharer.weight)
    if other ~= name and sharer.present and (sharer.calls > 0 or now < back) then
      local turn = math.max(sharer.turn, least_turn(sharer.weight))
      local ahead = math.ceil((mine - turn) * sharer.weight - 0.001)
      if ahead > 0 then owed = owed + math.max(ahead, sharer.calls) end
    end
  end
  return name, mine, owed
end

-- The sharer was granted calls.
local function advance_turn(sharer, turn, calls, weight, now)
  if turn > last_turn() then redis.call('HSET', KEYS[3], 'turn', string.format('%.6f', turn)) end
  local entry = string.format('%.6f %.0f %.0f %.0f 0', turn + calls / weight, weight, now, now)
  redis.call('HSET', KEYS[4], sharer, entry)
end

-- The sharer waits for calls, and comes back at `due`.
local function keep_turn(sharer, turn, calls, weight, now, due)
  local entry = string.format('%.6f %.0f %.0f %.0f %.0f', turn, weight, now, due, calls)
  redis.call('HSET', KEYS[4], sharer, entry)
end
