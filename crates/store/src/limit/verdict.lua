-- Shared by the limits that weigh several windows: all of them must let a request pass, and the answer is
-- that of the window that a client should be told about: when refused, the one that keeps it out longest;
-- when let through, the one with the least left.
local function verdict(windows)
  local told
  for _, window in ipairs(windows) do
    if not told or window.retry > told.retry
        or (told.retry == 0 and window.retry == 0 and window.remaining < told.remaining) then
      told = window
    end
  end
  return told
end

-- {'allowed' or 'denied', index of the window told, remaining, reset, retry}, times in the script's unit.
local function answer(window)
  local word = window.retry > 0 and 'denied' or 'allowed'
  return {word, window.index, math.max(0, window.remaining), window.reset, window.retry}
end
