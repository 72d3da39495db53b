-- Allow a request if the backlog of every window leaves room for it. This is the generic cell rate algorithm with a
-- burst and a cost, computed with whole numbers only.
--
-- A window allows `rate` requests per `per_us`, so each request occupies per_us / rate microseconds. This may be a
-- fraction, so backlogs are counted in units of 1/rate microsecond: a request adds per_us units, each microsecond
-- removes rate units, and nothing is ever rounded. The key stores the time at which the backlog will be empty: whole
-- microseconds (`at`), and the units that are left after them (`part`).
-- KEYS  1 string "seen_us;rate/per_us=at,part;…" with one entry per window, so that any number of windows takes one
--       read and one write. After requests were given back (gcra_give_back.lua) it starts with "seen_us,given,until_us;"
-- ARGV  cost, least (the smallest part of the cost that may be allowed; '' = the whole cost), now_us ('' = the store's
--       clock), then rate, per_us and burst of each window, in lowest terms and with burst × per_us < 2⁵²
-- Returns {'allowed' | 'denied', index of the reported window, remaining, reset_us, retry_us}. If `least` is given,
--       followed by the number of allowed requests, and their receipt: the new value of the key
-- TTL: the key expires when all backlogs are empty, which means the same as a missing key, and when all receipts that
-- `given` matters for are void.
local cost, clock = tonumber(ARGV[1]), clock_us(ARGV[3])
local least = tonumber(ARGV[2]) or cost
local state = redis.call('GET', KEYS[1]) or ''
local seen, given, receipts_until = string.match(state, '^(%d+)(,?%d*),?(%d*)')
local now = math.max(clock, tonumber(seen) or 0)

local windows, granted = {}, cost
for at = 4, #ARGV, 3 do
  local rate, per_us, burst = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local name = ';' .. ARGV[at] .. '/' .. ARGV[at + 1] .. '='
  local ends, part = string.match(state, name .. '(%d+),(%d+)')
  local backlog = 0
  if ends then backlog = math.max(0, (ends - now) * rate + part) end
  granted = math.min(granted, math.floor((burst * per_us - backlog) / per_us))
  local over, retry = backlog + least * per_us - burst * per_us, 0
  if cost > 0 and over > 0 then retry = math.ceil(over / rate) end
  windows[#windows + 1] =
    { index = #windows + 1, name = name, rate = rate, per = per_us, burst = burst, backlog = backlog, retry = retry }
end
if granted < least then granted = 0 end

local gone, written = math.max(now, tonumber(receipts_until) or 0), int(now)
if receipts_until and receipts_until ~= '' then written = written .. given .. ',' .. receipts_until end
for _, window in ipairs(windows) do
  local rate, backlog = window.rate, window.backlog + granted * window.per
  window.remaining = math.floor((window.burst * window.per - backlog) / window.per)
  window.reset = math.ceil(backlog / rate)
  gone = math.max(gone, now + window.reset)
  written = written .. string.format('%s%.0f,%.0f', window.name, now + math.floor(backlog / rate), backlog % rate)
end
if granted > 0 then
  redis.call('SET', KEYS[1], written, 'PX', int(math.max(1, math.ceil((gone - clock) / 1000))))
end
local result = answer(verdict(windows))
if ARGV[2] ~= '' then result[6], result[7] = granted, written end
return result
