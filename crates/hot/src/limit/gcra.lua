-- Let a request pass while, in every window, the backlog leaves room for it: the generic cell rate
-- algorithm, with a burst and a cost, in whole numbers.
--
-- A window lets `rate` requests pass per `per_us`, so each occupies per_us / rate microseconds, which may be
-- no whole number. Backlogs are therefore counted in 1/rate of a microsecond: a request adds per_us of them,
-- each microsecond takes rate of them away, and nothing is ever rounded. What is stored is the time at which
-- the backlog is gone: whole microseconds `at`, and `part` of the next one.
-- KEYS  1 hash: seen_us, and per window "rate/per_us": at, part
-- ARGV  cost, now_us ('' = the store's clock), then rate, per_us and burst of each window, in lowest terms
--       and with burst × per_us < 2⁵²
-- Returns {'allowed' | 'denied', index of the window told, remaining, reset_us, retry_us}
-- TTL: when the last backlog is gone, which says the same as no hash at all.
local cost = tonumber(ARGV[1])
local now = math.max(clock_us(ARGV[2]), tonumber(redis.call('HGET', KEYS[1], 'seen_us') or 0))

local windows, denied = {}, false
for at = 3, #ARGV, 3 do
  local rate, per_us, burst = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local name = ARGV[at] .. '/' .. ARGV[at + 1]
  local stored = redis.call('HMGET', KEYS[1], name .. ':at', name .. ':part')
  local backlog = 0
  if stored[1] then backlog = math.max(0, (stored[1] - now) * rate + stored[2]) end
  local over = backlog + cost * per_us - burst * per_us
  local retry = 0
  if cost > 0 and over > 0 then retry = math.ceil(over / rate) end
  denied = denied or retry > 0
  windows[#windows + 1] =
    { index = #windows + 1, name = name, rate = rate, per = per_us, burst = burst, backlog = backlog, retry = retry }
end

local gone = now
for _, window in ipairs(windows) do
  if not denied then window.backlog = window.backlog + cost * window.per end
  window.remaining = math.floor((window.burst * window.per - window.backlog) / window.per)
  window.reset = math.ceil(window.backlog / window.rate)
  gone = math.max(gone, now + window.reset)
  if not denied and cost > 0 then
    redis.call('HSET', KEYS[1], 'seen_us', int(now),
      window.name .. ':at', int(now + math.floor(window.backlog / window.rate)),
      window.name .. ':part', int(window.backlog % window.rate))
  end
end
if not denied and cost > 0 then collect_at(KEYS[1], gone / 1000, math.floor(now / 1000), ARGV[2]) end
return answer(verdict(windows))
