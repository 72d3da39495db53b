-- Shared by the scripts that write the gateway's keys. The scripts check every key before they change one, so that none
-- fails half way. Keys that another client has changed are overwritten and listed in `foreign`.
local foreign = {}

local function is_a(kind, key)
  local found = redis.call('TYPE', key).ok
  return found == kind or found == 'none'
end

-- Deletes a key of another type.
local function claim(kind, key)
  if is_a(kind, key) then return end
  foreign[#foreign + 1] = key
  redis.call('DEL', key)
end

-- Whether a text is a count in Redis's format that stays exact in Lua after an addition.
local function is_count(text)
  return #text <= 15 and (text == '0' or string.find(text, '^[1-9]%d*$') ~= nil)
end

-- Whether a marker (see lost()) is valid and its epoch can be raised.
local function is_marker(key)
  if not is_a('hash', key) then return false end
  local epoch = redis.call('HGET', key, 'epoch')
  return not epoch or (is_count(epoch) and tonumber(epoch) < 2097151)
end

-- Adds to a field of a hash, or resets the field if it holds something else.
local function add_field(key, field, count)
  local added = redis.pcall('HINCRBY', key, field, count)
  if type(added) == 'table' then redis.call('HSET', key, field, count) end
end
