-- A whole number that Hob's scripts have stored, or `missing` if there is none. Fails if it is anything else: another client
-- has written it, and the caller repairs `key`, or all keys of the script if it is nil. Without this check a number such as
-- 1e300 would stop a clock, or refuse every later write.
local function stored(text, missing, key)
  if not text then return missing end
  if #text > 16 or not string.find(text, '^%d+$') then error('foreign value: ' .. (key or '')) end
  return tonumber(text)
end
