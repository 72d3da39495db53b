-- Fill the list of newest messages from the database, unless it is as new already.
-- KEYS  1 recent list · 2 range hash
-- ARGV  sequence that the messages were read at, whether these are all messages ('1' | '0'), ttl_ms, message (newest first), …
-- Returns {'filled'} · {'newer'} what is there is of a later event
-- TTL: of both, set together. A list without its range is not read, and one that is too short is not either.
local held = tonumber(redis.call('HGET', KEYS[2], 'sequence') or -1) or -1
if held >= tonumber(ARGV[1]) then return {'newer'} end
redis.call('DEL', KEYS[1])
for i = 4, #ARGV do redis.call('RPUSH', KEYS[1], ARGV[i]) end
redis.call('HSET', KEYS[2], 'sequence', ARGV[1], 'whole', ARGV[2], 'length', #ARGV - 3)
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return {'filled'}
