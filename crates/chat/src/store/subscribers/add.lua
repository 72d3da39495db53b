-- Add clients to the presence of a channel, or renew their entries.
-- KEYS  1 clients hash, 2 expiry zset (client by expiry, ms)
-- ARGV  max clients, ttl_ms, now_us ('' = the store's clock), client, info, …
-- Returns {'added', how many are in the presence now}
-- TTL: both keys expire with the newest entry; every earlier one expires before.
local now = clock_ms(ARGV[3])
expire(KEYS[1], KEYS[2], now)
local count = redis.call('HLEN', KEYS[1])
for i = 4, #ARGV, 2 do
  local is_new = redis.call('HEXISTS', KEYS[1], ARGV[i]) == 0
  if not is_new or count < tonumber(ARGV[1]) then
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
    redis.call('ZADD', KEYS[2], int(now + ARGV[2]), ARGV[i])
    if is_new then count = count + 1 end
  end
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return {'added', count}
