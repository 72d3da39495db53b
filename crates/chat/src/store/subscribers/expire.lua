-- Remove the clients of a channel whose entries have expired, because their nodes are dead. At most 1000 at a time.
local function expire(clients, expiry, now_ms)
  local expired = redis.call('ZRANGEBYSCORE', expiry, '-inf', int(now_ms), 'LIMIT', 0, 1000)
  for _, client in ipairs(expired) do
    redis.call('HDEL', clients, client)
    redis.call('ZREM', expiry, client)
  end
end
