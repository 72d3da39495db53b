-- Start-time fair queueing of runs that wait for one quota. The turn of a run is a number that grows by calls / weight; the
-- run with the smallest turn is next. A run with a retry time (retry_ms) competes from then on for
-- GRACE_MS: other runs cannot overtake it, and do not wait for it if it is gone.
-- Turns hash: run → "turn retry_ms".

local GRACE_MS = 2500
local RETRY_MS = 50

-- The turn of a run, and whether another run that competes now has an earlier one. Deletes runs that neither wait nor are
-- ahead of the others.
local function read_turns(run, now)
  local base = tonumber(redis.call('HGET', KEYS[3], 'turn') or 0)
  local mine, earliest = base, nil
  local all = redis.call('HGETALL', KEYS[4])
  for at = 1, #all, 2 do
    local turn, retry = string.match(all[at + 1], '^(%S+) (%S+)$')
    turn, retry = math.max(base, tonumber(turn)), tonumber(retry)
    if all[at] == run then
      mine = turn
    elseif retry + GRACE_MS > now then
      if retry > 0 and retry <= now then earliest = math.min(earliest or turn, turn) end
    elseif turn <= base then
      redis.call('HDEL', KEYS[4], all[at])
    end
  end
  return mine, earliest ~= nil and earliest < mine
end

local function save_turn(run, turn, retry)
  redis.call('HSET', KEYS[4], run, string.format('%.6f %.0f', turn, retry))
end
