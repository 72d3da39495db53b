-- Shared by the limits with several windows. A request is allowed only if every window allows it. The answer reports
-- one window: if the request is denied, the window with the longest wait; if it is allowed, the window with the
-- fewest remaining requests.
local function verdict(windows)
  local reported
  for _, window in ipairs(windows) do
    if not reported or window.retry > reported.retry
        or (reported.retry == 0 and window.retry == 0 and window.remaining < reported.remaining) then
      reported = window
    end
  end
  return reported
end

-- {'allowed' | 'denied', index of the reported window, remaining, reset, retry}, with times in the unit of the script.
local function answer(window)
  local word = window.retry > 0 and 'denied' or 'allowed'
  return {word, window.index, math.max(0, window.remaining), window.reset, window.retry}
end
