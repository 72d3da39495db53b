-- Say which random word is here; if there is none, put one down.
-- KEYS  1 witness
-- ARGV  a new word
-- Returns {'here', word}
-- No TTL: it goes with the data that it stands for.
local word = redis.call('GET', KEYS[1])
if not word then
  word = ARGV[1]
  redis.call('SET', KEYS[1], word)
end
return {'here', word}
