-- Sums the open connections of all live instances; deletes every other field.
local function connections_of(instances, connections)
  local sum, fields = 0, redis.call('HGETALL', connections)
  for at = 1, #fields, 2 do
    if is_count(fields[at + 1]) and redis.call('ZSCORE', instances, fields[at]) then
      sum = sum + fields[at + 1]
    else
      redis.call('HDEL', connections, fields[at])
    end
  end
  return sum
end
