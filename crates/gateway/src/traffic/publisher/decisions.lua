-- Add the decisions of a rule, and the callers that it refused.
-- KEYS  1 counts hash, 2 zset of the callers refused most
-- ARGV  allowed, refused, shadowed, max callers, then caller and count …
-- Returns {'added', overwritten foreign keys …}
-- TTL: the counts expire a month after the last decision, the callers an hour after the last refusal.
claim('hash', KEYS[1])
claim('zset', KEYS[2])
local fields = {'allowed', 'refused', 'shadowed'}
for index, field in ipairs(fields) do add_field(KEYS[1], field, ARGV[index]) end
redis.call('EXPIRE', KEYS[1], 30 * 86400)
for at = 5, #ARGV, 2 do redis.call('ZINCRBY', KEYS[2], ARGV[at + 1], ARGV[at]) end
if #ARGV > 4 then
  redis.call('ZREMRANGEBYRANK', KEYS[2], 0, -(ARGV[4] + 1))
  redis.call('EXPIRE', KEYS[2], 3600)
end
return {'added', unpack(foreign)}
