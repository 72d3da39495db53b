-- Shared by every script that depends on earlier writes. The marker of a tag is a hash. It has the fields `epoch` and
-- `n`, the number of fences issued in that epoch; or `rebuilding`, the epoch in which the tag is being rebuilt. It has
-- no TTL: a missing marker means that the data of the tag was lost.

-- nil if the marker has this epoch, otherwise the answer {'lost', epoch found or ''}.
local function lost(marker, epoch)
  local found = redis.call('HGET', marker, 'epoch')
  if found == epoch then return nil end
  return {'lost', found or ''}
end

-- nil if the tag is being rebuilt in this epoch, otherwise the answer {'superseded'}.
local function superseded(marker, epoch)
  if redis.call('HGET', marker, 'rebuilding') == epoch then return nil end
  return {'superseded'}
end

-- The next fence, epoch·2³² + n, which is exact in a double. The marker must have this epoch.
local function next_fence(marker, epoch)
  local n = redis.call('HINCRBY', marker, 'n', 1)
  if n >= 4294967296 then error('this epoch has no fence left') end
  return epoch * 4294967296 + n
end
