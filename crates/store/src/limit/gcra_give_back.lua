-- Give back requests that gcra.lua allowed but that were never made, unless their time in the backlog has passed.
--
-- A backlog is a queue that shrinks from its front. When a receipt was issued, its requests were at the end of the
-- queue. Everything before them leaves the queue first, so the part of them that is still queued is the time from now
-- to that end. Requests that others have given back since then may have been in front of them and have moved them
-- forward, so these are subtracted. Requests that have left the queue are not given back: their time has passed, and
-- others could use it.
-- KEYS  1 string, see gcra.lua
-- ARGV  count, hold_us (a receipt is void after this time), receipt, now_us ('' = the store's clock), then rate and
--       per_us of each window
-- Returns {'given', number of requests given back}
-- TTL: as in gcra.lua. `given` matters until every receipt that exists now is void.
local count, hold_us, receipt, clock = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], clock_us(ARGV[4])
local state = redis.call('GET', KEYS[1]) or ''
local head = '^(%d+),?(%d*)'
local seen, given = string.match(state, head)
local lent_at, given_then = string.match(receipt, head)
if not seen or not lent_at then return {'given', 0} end
local now = math.max(clock, tonumber(seen))
if now - lent_at >= hold_us then return {'given', 0} end
given, given_then = tonumber(given) or 0, tonumber(given_then) or 0

local function queued(text, name)
  local ends, part = string.match(text, name .. '(%d+),(%d+)')
  return ends and { ends = tonumber(ends), part = tonumber(part) }
end

local windows = {}
for at = 5, #ARGV, 2 do
  local rate, per_us = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local name = ';' .. ARGV[at] .. '/' .. ARGV[at + 1] .. '='
  local mine, all = queued(receipt, name), queued(state, name)
  if not mine or not all then return {'given', 0} end
  local left = (mine.ends - now) * rate + mine.part - math.max(0, given - given_then) * per_us
  count = math.min(count, math.floor(left / per_us))
  windows[#windows + 1] = { name = name, rate = rate, per = per_us, backlog = (all.ends - now) * rate + all.part }
end
if count <= 0 then return {'given', 0} end

local gone = now + hold_us
local written = string.format('%.0f,%.0f,%.0f', now, given + count, gone)
for _, window in ipairs(windows) do
  local backlog = math.max(0, window.backlog - count * window.per)
  gone = math.max(gone, now + math.ceil(backlog / window.rate))
  written = written
    .. string.format('%s%.0f,%.0f', window.name, now + math.floor(backlog / window.rate), backlog % window.rate)
end
redis.call('SET', KEYS[1], written, 'PX', int(math.max(1, math.ceil((gone - clock) / 1000))))
return {'given', count}
