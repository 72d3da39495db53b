-- Subtract requests that sliding_window.lua has allowed and that were not used, as if they had never been counted.
-- KEYS  1 string, see sliding_window.lua
-- ARGV  count, receipt, then limit and window_ms of each window
-- Returns {'given', how many}
-- TTL: not changed; the counts expire when they would have expired.
local count, allowed_at = tonumber(ARGV[1]), tonumber(ARGV[2])
local state = redis.call('GET', KEYS[1])
if not state then return {'given', 0} end
local written, given = string.match(state, '^%d+'), 0
for at = 3, #ARGV, 2 do
  local name = ';' .. ARGV[at] .. '/' .. ARGV[at + 1] .. '='
  local number, now, before = string.match(state, name .. '(%d+),(%d+),(%d+)')
  -- Another client has changed the key, or the rule has other windows now.
  if not number then return {'given', 0} end
  -- The requests are in this calendar window, in the one before, or do not count any more.
  local age = number - math.floor(allowed_at / ARGV[at + 1])
  if age == 0 then
    now = math.max(0, now - count)
  elseif age == 1 then
    before = math.max(0, before - count)
  end
  if age == 0 or age == 1 then given = count end
  written = written .. string.format('%s%.0f,%.0f,%.0f', name, number, now, before)
end
redis.call('SET', KEYS[1], written, 'KEEPTTL')
return {'given', given}
