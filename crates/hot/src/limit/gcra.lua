-- Let a request pass while, in every window, the backlog leaves room for it: the generic cell rate
-- algorithm, with a burst and a cost, in whole numbers.
--
-- A window lets `rate` requests pass per `per_us`, so each occupies per_us / rate microseconds, which may be
-- no whole number. Backlogs are therefore counted in 1/rate of a microsecond: a request adds per_us of them,
-- each microsecond takes rate of them away, and nothing is ever rounded. What is stored is the time at which
-- the backlog is gone: whole microseconds, and the part of the next one.
-- KEYS  1 string "seen_us;rate/per_us=at,part;…", one entry per window: one read and one write, whatever
--       their number
-- ARGV  cost, now_us ('' = the store's clock), then rate, per_us and burst of each window, in lowest terms
--       and with burst × per_us < 2⁵²
-- Returns {'allowed' | 'denied', index of the window told, remaining, reset_us, retry_us}
-- TTL: when the last backlog is gone, which says the same as no key at all.
local cost, clock = tonumber(ARGV[1]), clock_us(ARGV[2])
local state = redis.call('GET', KEYS[1]) or ''
local now = math.max(clock, tonumber(string.match(state, '^%d+')) or 0)

local windows, denied = {}, false
for at = 3, #ARGV, 3 do
  local rate, per_us, burst = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local name = ';' .. ARGV[at] .. '/' .. ARGV[at + 1] .. '='
  local ends, part = string.match(state, name .. '(%d+),(%d+)')
  local backlog = 0
  if ends then backlog = math.max(0, (ends - now) * rate + part) end
  local over, retry = backlog + cost * per_us - burst * per_us, 0
  if cost > 0 and over > 0 then
    retry = math.ceil(over / rate)
    denied = true
  end
  windows[#windows + 1] =
    { index = #windows + 1, name = name, rate = rate, per = per_us, burst = burst, backlog = backlog, retry = retry }
end

local gone, written = now, int(now)
for _, window in ipairs(windows) do
  local backlog, rate = window.backlog, window.rate
  if not denied then backlog = backlog + cost * window.per end
  window.remaining = math.floor((window.burst * window.per - backlog) / window.per)
  window.reset = math.ceil(backlog / rate)
  gone = math.max(gone, now + window.reset)
  written = written .. string.format('%s%.0f,%.0f', window.name, now + math.floor(backlog / rate), backlog % rate)
end
if not denied and cost > 0 then
  redis.call('SET', KEYS[1], written, 'PX', int(math.max(1, math.ceil((gone - clock) / 1000))))
end
return answer(verdict(windows))
