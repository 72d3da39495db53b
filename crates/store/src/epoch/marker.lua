-- Shared by every script that depends on earlier writes. A tag's marker is a hash: `epoch`, and `n`, the
-- fences given out in that epoch; or `rebuilding`, the epoch in which the tag is being rebuilt. It has no TTL: that it is
-- gone is how loss is seen.

-- nil while the marker is of this epoch, else the answer {'lost', epoch found or ''}.
local function lost(marker, epoch)
  local found = redis.call('HGET', marker, 'epoch')
  if found == epoch then return nil end
  return {'lost', found or ''}
end

-- nil while the tag is being rebuilt in this epoch, else the answer {'superseded'}.
local function superseded(marker, epoch)
  if redis.call('HGET', marker, 'rebuilding') == epoch then return nil end
  return {'superseded'}
end

-- The next fence of a marker that is not lost: epoch·2³² + n, exact in a double.
local function next_fence(marker, epoch)
  local n = redis.call('HINCRBY', marker, 'n', 1)
  if n >= 4294967296 then error('this epoch has no fence left') end
  return epoch * 4294967296 + n
end
