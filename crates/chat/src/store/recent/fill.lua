-- Fill the cache of recent messages from the database, unless it is at least as new.
-- KEYS  1 recent list, 2 range hash
-- ARGV  sequence at which the messages were read, whether these are all messages ('1' | '0'), ttl_ms,
--       message (newest first), …
-- Returns {'filled'} or {'newer'} (the cache is as new or newer)
-- TTL: both keys get it together. A list without its range, or of the wrong length, is not read.
local held = stored(redis.call('HGET', KEYS[2], 'sequence'), -1, KEYS[2])
if held >= tonumber(ARGV[1]) then return {'newer'} end
redis.call('DEL', KEYS[1])
for i = 4, #ARGV do redis.call('RPUSH', KEYS[1], ARGV[i]) end
redis.call('HSET', KEYS[2], 'sequence', ARGV[1], 'whole', ARGV[2], 'length', #ARGV - 3)
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return {'filled'}
