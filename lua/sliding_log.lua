-- The sliding log: at most `count` in any `window` milliseconds, exactly. The same as src/core/src/limit/sliding_log.rs,
-- which adds up all entries; here no decision reads more than a few.
--
-- Stored: a sorted set with an entry for each admitted request. Its score is when, in milliseconds; its member is
-- `EPOCH.SUM:COST`, where SUM is the sum of all costs up to this entry, below 2^53, and EPOCH how often it has gone round.
-- Two entries' sums give the cost of all between them, and the digits are as many in all of them, so that entries of one
-- millisecond are in their order too. A set that begins or ends with another member is an empty log.
local function sliding_log()
  -- The entry of that rank; nil where there is none, or it isn't one.
  local function entry(key, rank)
    local found = redis.call('ZRANGE', key, rank, rank, 'WITHSCORES')
    if not found[1] then
      return nil
    end
    local epoch, sum, cost = string.match(found[1], '^(%d+)%.(%d+):(%d+)$')
    local at = tonumber(found[2])
    return epoch and whole(at) and { epoch = tonumber(epoch), sum = tonumber(sum), cost = tonumber(cost), at = at }
  end

  -- The cost of all entries from one to another.
  local function between(first, last)
    local sum = last.sum - first.sum
    return (last.epoch > first.epoch and sum + EXACT or sum) + first.cost
  end

  -- Milliseconds until an entry counts no more. None is in the future, whatever the clock has done.
  local function left_of(limit, at)
    return math.min(at, now) + limit.window - now
  end

  -- The time after which so much has left the log, of which ranks from `first` to `last` are in the window.
  local function wait_for(limit, amount, first, last)
    local oldest = entry(limit.key, first)
    while first < last do
      local middle = math.floor((first + last) / 2)
      local found = entry(limit.key, middle)
      if not found or between(oldest, found) >= amount then
        last = middle
      else
        first = middle + 1
      end
    end
    local found = entry(limit.key, first)
    return left_of(limit, found and found.at or now)
  end

  -- Entries in the future are as of now.
  local function mend(limit)
    if limit.newest and limit.newest.at > now then
      for _, member in ipairs(redis.call('ZRANGEBYSCORE', limit.key, '(' .. limit.now, '+inf')) do
        redis.call('ZADD', limit.key, limit.now, member)
      end
      redis.call('PEXPIRE', limit.key, limit.window)
    end
  end

  return {
    check = function(limit)
      local key = limit.key
      limit.now, limit.before = string.format('%d', now), string.format('%d', now - limit.window)
      local total, over, newest = 0, 0, entry(key, -1)
      if newest then
        over = redis.call('ZCOUNT', key, '-inf', limit.before)
        local oldest = entry(key, over)
        if oldest then
          total = between(oldest, newest)
          limit.newest = newest
        end
      end
      limit.total = total
      limit.reset = total > 0 and left_of(limit, newest.at) or 0
      if limit.cost > limit.count then
        limit.status = NEVER
      elseif total <= limit.count - limit.cost then
        limit.status = ALLOWED
      else
        limit.status = DENIED
        limit.retry = wait_for(limit, total - (limit.count - limit.cost), over, redis.call('ZCARD', key) - 1)
      end
    end,

    charge = function(limit)
      local newest = limit.newest
      if newest then
        mend(limit)
        redis.call('ZREMRANGEBYSCORE', limit.key, '-inf', limit.before)
      else
        redis.call('DEL', limit.key)
        newest = { epoch = 0, sum = 0 }
      end
      local epoch, sum = newest.epoch, newest.sum + limit.cost
      if newest.sum >= EXACT - limit.cost then
        epoch, sum = epoch + 1, newest.sum - (EXACT - limit.cost)
      end
      redis.call('ZADD', limit.key, limit.now, string.format('%06d.%016d:%d', epoch, sum, limit.cost))
      redis.call('PEXPIRE', limit.key, limit.window)
      return limit.count - limit.total - limit.cost, limit.window
    end,

    keep = function(limit)
      mend(limit)
      ensure_expiry(limit.key, limit.reset)
      return math.max(limit.count - limit.total, 0), limit.reset
    end,
  }
end
