-- Shared by the scripts that write the gateway's keys. These keys are ours: what somebody else has written there is
-- found before anything is changed, so that no script fails half way, and overwritten. `foreign` names such keys.
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

-- Whether a text is a count as Redis writes it, and small enough to be exact in Lua after adding to it.
local function is_count(text)
  return #text <= 15 and (text == '0' or string.find(text, '^[1-9]%d*$') ~= nil)
end

-- Whether a marker (see lost()) can be believed; there is room for another epoch after its one.
local function is_marker(key)
  if not is_a('hash', key) then return false end
  local epoch = redis.call('HGET', key, 'epoch')
  return not epoch or (is_count(epoch) and tonumber(epoch) < 2097151)
end

-- Adds to a field of a hash, or begins it again if it holds something else.
local function add_field(key, field, count)
  local added = redis.pcall('HINCRBY', key, field, count)
  if type(added) == 'table' then redis.call('HSET', key, field, count) end
end
