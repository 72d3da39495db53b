-- Who may go first when several runs wait for one quota: start-time fair queueing. A run's turn is a number that
-- grows by calls / weight; whoever has the smallest goes first. A run that was told to come at a time contends from
-- then on for a while, so that it is neither overtaken by a faster asker nor waited for when it has gone away.
-- Turns hash: run → "turn told_ms".

local GRACE_MS = 2500
local RETRY_MS = 50

-- A run's turn, and whether another that contends now has an earlier one. Forgets runs that neither wait nor are
-- ahead of the others.
local function look_at_turns(run, now)
  local base = tonumber(redis.call('HGET', KEYS[3], 'turn') or 0)
  local mine, earliest = base, nil
  local all = redis.call('HGETALL', KEYS[4])
  for at = 1, #all, 2 do
    local turn, told = string.match(all[at + 1], '^(%S+) (%S+)$')
    turn, told = math.max(base, tonumber(turn)), tonumber(told)
    if all[at] == run then
      mine = turn
    elseif told + GRACE_MS > now then
      if told > 0 and told <= now then earliest = math.min(earliest or turn, turn) end
    elseif turn <= base then
      redis.call('HDEL', KEYS[4], all[at])
    end
  end
  return mine, earliest ~= nil and earliest < mine
end

local function keep_turn(run, turn, told)
  redis.call('HSET', KEYS[4], run, string.format('%.6f %.0f', turn, told))
end
