-- Read the random word of a shard, or set it if there is none.
-- KEYS  1 witness
-- ARGV  new word
-- Returns {'here', word}
-- No TTL: the word is lost only together with the data of the shard.
local word = redis.call('GET', KEYS[1])
if not word then
  word = ARGV[1]
  redis.call('SET', KEYS[1], word)
end
return {'here', word}
