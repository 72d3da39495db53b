-- Shared by every script that depends on earlier writes. The marker of a tag is a hash. It has the fields `epoch` and
-- `n`, the number of fences issued in that epoch; or `rebuilding`, the epoch in which the tag is being rebuilt. The field
-- `server` is the history of the server in which that epoch began. It has no TTL: a missing marker means that the data of
-- the tag was lost; a marker from another history means that newer data may have been lost.

-- nil if the marker has this epoch, otherwise the answer {'lost', epoch found or ''}.
local function lost(marker, epoch)
  local found = redis.call('HMGET', marker, 'epoch', 'server')
  if not same_server(found[2]) then return {'lost', ''} end
  if found[1] == epoch then return nil end
  return {'lost', found[1] or ''}
end

-- nil if the tag is being rebuilt in this epoch, otherwise the answer {'superseded'}.
local function superseded(marker, epoch)
  local found = redis.call('HMGET', marker, 'rebuilding', 'server')
  if found[1] == epoch and same_server(found[2]) then return nil end
  return {'superseded'}
end

-- The next fence, epoch·2³² + n, which is exact in a double. The marker must have this epoch.
local function next_fence(marker, epoch)
  local n = redis.call('HINCRBY', marker, 'n', 1)
  if n >= 4294967296 then error('this epoch has no fence left') end
  return epoch * 4294967296 + n
end
