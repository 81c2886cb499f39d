-- The sliding window: what was charged in the current window, and of the previous one as large a part as the last `window`
-- milliseconds still reach into it, rounded up. Windows begin at multiples of `window` since 1970. The same step as
-- src/core/src/limit/sliding_window.rs.
--
-- Stored: a hash of `win` (the current window's number), `cur` and `prev` (what was charged in it and in the one before).
-- Fields that aren't such integers are an empty window. Windows in the future (the clock has stepped back) are current.
local function sliding_window()
  local function write(limit, reset)
    redis.call('HSET', limit.key, 'win', limit.win, 'cur', limit.cur, 'prev', limit.prev)
    redis.call('PEXPIRE', limit.key, reset)
  end

  -- Milliseconds until nothing of it counts any more.
  local function reset_of(limit)
    if limit.cur > 0 then
      return limit.left + limit.window
    end
    return limit.prev > 0 and limit.left or 0
  end

  return {
    check = function(limit)
      local stored = redis.call('HMGET', limit.key, 'win', 'cur', 'prev')
      local win, cur, prev = tonumber(stored[1]), tonumber(stored[2]), tonumber(stored[3])
      local window, gone = limit.window, now % limit.window
      limit.win, limit.left = (now - gone) / window, window - gone
      if not (whole(win) and whole(cur) and whole(prev)) or win < limit.win - 1 then
        cur, prev = 0, 0
      elseif win < limit.win then
        cur, prev = 0, cur
      elseif win > limit.win then
        -- How much of the previous one counted isn't known any more: all of it counts, and fades with this one.
        cur, prev = math.min(cur + prev, EXACT - 1), 0
        limit.ahead = true
      end
      limit.cur, limit.prev = cur, prev
      limit.reach = muldiv_up(prev, limit.left, window)
      if limit.cost > limit.count then
        limit.status = NEVER
        return
      end
      local room = limit.count - limit.cost -- for what counts already
      if cur <= room and limit.reach <= room - cur then
        limit.status = ALLOWED
      elseif cur <= room then
        -- Within this window, once little enough of the previous one is reached into.
        limit.status = DENIED
        limit.retry = limit.left - muldiv(room - cur, window, prev)
      else
        -- Within the next one, where this one is the previous.
        limit.status = DENIED
        limit.retry = limit.left + window - muldiv(room, window, cur)
      end
    end,

    charge = function(limit)
      limit.cur = limit.cur + limit.cost
      local reset = reset_of(limit)
      write(limit, reset)
      return limit.count - limit.cur - limit.reach, reset
    end,

    keep = function(limit)
      local reset = reset_of(limit)
      if limit.ahead then
        write(limit, math.max(reset, 1))
      else
        ensure_expiry(limit.key, reset)
      end
      return math.max(limit.count - limit.cur - limit.reach, 0), reset
    end,
  }
end
