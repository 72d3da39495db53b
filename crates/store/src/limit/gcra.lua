-- Let a request pass while, in every window, the backlog leaves room for it: the generic cell rate
-- algorithm, with a burst and a cost, in whole numbers.
--
-- A window lets `rate` requests pass per `per_us`, so each occupies per_us / rate microseconds, which may be
-- no whole number. Backlogs are therefore counted in 1/rate of a microsecond: a request adds per_us of them,
-- each microsecond takes rate of them away, and nothing is ever rounded. What is stored is the time at which
-- the backlog is gone: whole microseconds, and the part of the next one.
-- KEYS  1 string "seen_us;rate/per_us=at,part;…", one entry per window: one read and one write, whatever
--       their number. Once tokens were given back (gcra_give_back.lua) it begins "seen_us,given,until_us;"
-- ARGV  cost, least ('' = all of the cost), now_us ('' = the store's clock), then rate, per_us and burst of each
--       window, in lowest terms and with burst × per_us < 2⁵²
-- Returns {'allowed' | 'denied', index of the window told, remaining, reset_us, retry_us}, and if there is a least,
--       how many were let pass, and the state as it was left, which is the receipt for them
-- TTL: when the last backlog is gone, which says the same as no key at all, and the last receipt is void for which
-- what was given back matters.
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
local told = answer(verdict(windows))
if ARGV[2] ~= '' then told[6], told[7] = granted, written end
return told
