-- Add the counts of an instance since its last flush (G3 G4 G7–G15). Idempotent: a repeated number adds nothing.
-- KEYS  1 marker, 2 number of the instance's last flush, 3 set of endpoints, 4 number of samples
--       5 total, 6 accepted, 7 limited, 8 errors, 9 server errors, 10 requests of the instance
--       11–13 requests by hour: the hour before the expected one, the expected one, the next
--       14–16 latency of all endpoints, for the same three hours
--       then 10 keys each for `other` and every endpoint: requests, errors, times, sum, count, limited, server errors,
--       latency of three hours
--       then 1 key for each status
-- ARGV  epoch, number, now_us ('' = the store's clock), start of the expected hour in ms, max endpoints, max times,
--       total, accepted, limited, errors, server errors, number of statuses, count of each, number of endpoints, then for
--       each endpoint: name, requests, errors, count, sum in ms, limited, server errors, number of times, age_ms and ms of
--       each, number of buckets, then of each its minute since 1970 ('' = now), index and count. Minutes before the previous
--       hour are dropped.
-- Returns {'flushed' | 'repeated', now_ms, hour_ms, indexes of endpoints that were counted as `other` …}
--       {'wrong_hour', now_ms} if it is none of the three hours; nothing was counted
--       {'lost', epoch found or ''}
--       {'foreign', keys …} if keys hold values of another client; nothing was counted. The keys and the marker are
--       deleted, so that the totals are restored.
-- TTL: counters of an instance or an hour expire a day after their last write, when they are not read any more; the
-- number of a flush is needed for seconds. The other keys are bounded by the sets of endpoints and status codes.
if not is_marker(KEYS[1]) then
  redis.call('DEL', KEYS[1])
  return {'foreign', KEYS[1]}
end
local gone = lost(KEYS[1], ARGV[1])
if gone then return gone end
local HOUR, DAY_S = 3600000, 86400
local now = clock_ms(ARGV[3])
local hour = now - now % HOUR
local hour_index = (hour - ARGV[4]) / HOUR + 1
if hour_index < 0 or hour_index > 2 then return {'wrong_hour', now} end

local statuses = tonumber(ARGV[12])
local endpoints = tonumber(ARGV[13 + statuses])

-- Check every key before the first write: a script that fails half way has counted half.
local function check(kind, key)
  if not is_a(kind, key) then foreign[#foreign + 1] = key end
end

local function check_number(key, is_valid)
  local held = redis.pcall('GET', key)
  if held and not (type(held) == 'string' and is_valid(held)) then foreign[#foreign + 1] = key end
end

local function is_sum(text)
  return #text <= 40 and string.find(text, '^%d+%.?%d*$') ~= nil
end

check_number(KEYS[2], is_count)
check('set', KEYS[3])
for index = 4, 13 do check_number(KEYS[index], is_count) end
for index = 14, 16 do check('hash', KEYS[index]) end
for block = 17, 17 + 10 * endpoints, 10 do
  check_number(KEYS[block], is_count)
  check_number(KEYS[block + 1], is_count)
  check('zset', KEYS[block + 2])
  check_number(KEYS[block + 3], is_sum)
  for index = block + 4, block + 6 do check_number(KEYS[index], is_count) end
  for index = block + 7, block + 9 do check('hash', KEYS[index]) end
end
for index = 27 + 10 * endpoints, #KEYS do check_number(KEYS[index], is_count) end
if #foreign > 0 then
  for _, key in ipairs(foreign) do redis.call('DEL', key) end
  redis.call('DEL', KEYS[1])
  table.insert(foreign, 1, 'foreign')
  return foreign
end

local repeated = tonumber(ARGV[2]) <= tonumber(redis.call('GET', KEYS[2]) or 0)
local max_endpoints, max_times = tonumber(ARGV[5]), tonumber(ARGV[6])

local function is_named(name)
  if redis.call('SISMEMBER', KEYS[3], name) == 1 then return true end
  if repeated or redis.call('SCARD', KEYS[3]) >= max_endpoints then return false end
  redis.call('SADD', KEYS[3], name)
  return true
end

local function add(key, count)
  if count ~= '0' then redis.call('INCRBY', key, count) end
end

-- `first` is the index of the key for the first of the three hours.
local function add_buckets(first, at, buckets)
  local touched = {}
  for bucket = at, at + 3 * buckets - 1, 3 do
    local minute = tonumber(ARGV[bucket]) or math.floor(now / 60000)
    local index = hour_index + math.floor(minute / 60) - hour / HOUR
    if index >= 0 and index <= hour_index then
      local key = KEYS[first + index]
      touched[key] = true
      add_field(key, string.format('%d:%s', minute % 60, ARGV[bucket + 1]), ARGV[bucket + 2])
    end
  end
  for key in pairs(touched) do redis.call('EXPIRE', key, 26 * 3600) end
end

-- Members are plain numbers; the last digits of a sequence keep equal times apart.
local function add_times(key, at, times)
  if times == 0 then return end
  local sequence = redis.call('INCRBY', KEYS[4], times) - times
  local members = {}
  for time = 0, times - 1 do
    members[#members + 1] = int(now - ARGV[at + 2 * time])
    members[#members + 1] = string.format('%s%06d', ARGV[at + 2 * time + 1], (sequence + time) % 1000000)
    if #members == 200 or time == times - 1 then
      redis.call('ZADD', key, unpack(members))
      members = {}
    end
  end
  redis.call('ZREMRANGEBYRANK', key, 0, -(max_times + 1))
end

local at = 14 + statuses
local answer = {repeated and 'repeated' or 'flushed', now, hour}
for index = 1, endpoints do
  local block = 17 + 10 * index
  if ARGV[at] == 'other' then
    block = 17
  elseif not is_named(ARGV[at]) then
    block = 17
    answer[#answer + 1] = index
  end
  local times = tonumber(ARGV[at + 7])
  local buckets_at = at + 8 + 2 * times
  local buckets = tonumber(ARGV[buckets_at])
  if not repeated then
    add(KEYS[block], ARGV[at + 1])
    add(KEYS[block + 1], ARGV[at + 2])
    add_times(KEYS[block + 2], at + 8, times)
    if ARGV[at + 3] ~= '0' then redis.call('INCRBYFLOAT', KEYS[block + 3], ARGV[at + 4]) end
    add(KEYS[block + 4], ARGV[at + 3])
    add(KEYS[block + 5], ARGV[at + 5])
    add(KEYS[block + 6], ARGV[at + 6])
    add_buckets(block + 7, buckets_at + 1, buckets)
    add_buckets(14, buckets_at + 1, buckets)
  end
  at = buckets_at + 1 + 3 * buckets
end
if repeated then return answer end

for index = 1, 5 do add(KEYS[4 + index], ARGV[6 + index]) end
for status = 1, statuses do add(KEYS[26 + 10 * endpoints + status], ARGV[12 + status]) end
add(KEYS[10], ARGV[7])
redis.call('EXPIRE', KEYS[10], DAY_S)
add(KEYS[11 + hour_index], ARGV[7])
redis.call('EXPIRE', KEYS[11 + hour_index], DAY_S)
redis.call('SET', KEYS[2], ARGV[2], 'EX', DAY_S)
return answer
