-- The fixed window: at most `count` in a window, which begins with its first request and ends `window` milliseconds later.
-- The same step as src/core/src/limit/fixed_window.rs.
--
-- Stored: an integer, what was charged; when the key expires, the window is over. A value that isn't such an integer is no
-- window. One that would end later than a window that begins now (the clock has stepped back, or there is no expiry) ends
-- as if it had begun now.
local function fixed_window()
  return {
    check = function(limit)
      local used, left = tonumber(redis.call('GET', limit.key)), redis.call('PTTL', limit.key)
      limit.astray = left == -1 or left > limit.window
      -- At 0 milliseconds it is over, although Redis has the key still.
      if whole(used) and left ~= 0 then
        limit.used, limit.left = used, limit.astray and limit.window or left
      else
        limit.used, limit.left = 0, 0
      end
      if limit.cost > limit.count then
        limit.status = NEVER
      elseif limit.used <= limit.count - limit.cost then
        limit.status = ALLOWED
      else
        limit.status = DENIED
        limit.retry = limit.left
      end
    end,

    -- Not by INCRBY: it would fail, half-way through a commit, on an integer that somebody has written as `1e3`.
    charge = function(limit)
      local used = limit.used + limit.cost
      if limit.left == 0 or limit.astray then
        redis.call('SET', limit.key, used, 'PX', limit.window)
        limit.left = limit.window
      else
        redis.call('SET', limit.key, used, 'KEEPTTL')
      end
      return limit.count - used, limit.left
    end,

    keep = function(limit)
      if limit.astray then
        redis.call('PEXPIRE', limit.key, limit.window)
      end
      return math.max(limit.count - limit.used, 0), limit.left
    end,
  }
end
