-- The token bucket: up to `burst` tokens, `count` of them back per `window` milliseconds. The same step as
-- src/core/src/limit/token_bucket.rs, in the same whole numbers.
--
-- Stored: a hash of `tokens`, `frac` (what there is of the next token, in parts of one by the window) and `ts` (when
-- that was so, in milliseconds). A key that isn't there is a full bucket, and so is one whose fields aren't what is
-- written here.

local function token_bucket()
  -- Milliseconds, rounded up, until `missing` tokens less `frac` have come back.
  local function refill_wait(limit, missing, frac)
    if missing == 0 then
      return 0
    end
    local wait, rest = muldiv(missing, limit.window, limit.count)
    if rest > frac then
      wait = wait + 1
    else
      local over = frac - rest
      wait = wait - (over - over % limit.count) / limit.count
    end
    return wait < EXACT and wait or EXACT - 1
  end

  local function write_bucket(limit, reset)
    redis.call('HSET', limit.key, 'tokens', limit.tokens, 'frac', limit.frac, 'ts', now)
    redis.call('PEXPIRE', limit.key, reset > 0 and reset or 1)
  end

  -- Milliseconds, rounded up, until it is full.
  local function reset_of(limit)
    return refill_wait(limit, limit.burst - limit.tokens, limit.frac)
  end

  return {
    reset = reset_of,

    -- What is in the bucket now, and what that means for the cost. Writes nothing.
    check = function(limit)
      local stored = redis.call('HMGET', limit.key, 'tokens', 'frac', 'ts')
      local tokens, frac, ts = tonumber(stored[1]), tonumber(stored[2]), tonumber(stored[3])
      local burst, window = limit.burst, limit.window
      if whole(tokens) and whole(frac) and whole(ts) and frac < window then
        if ts < now then
          local back, part = muldiv(limit.count, now - ts, window)
          tokens, frac = tokens + back, frac + part
          if frac >= window then
            tokens, frac = tokens + 1, frac - window
          end
        end
        limit.ahead = ts > now
      else
        tokens = burst
      end
      if tokens >= burst then
        tokens, frac = burst, 0
      end
      limit.tokens, limit.frac = tokens, frac
      if limit.cost > burst then
        limit.status = NEVER
      elseif limit.cost <= tokens then
        limit.status = ALLOWED
      else
        limit.status = DENIED
        limit.retry = refill_wait(limit, limit.cost - tokens, frac)
      end
    end,

    -- Takes the cost, which is there. Gives what is left, and when the bucket is full again.
    charge = function(limit)
      limit.tokens = limit.tokens - limit.cost
      local reset = reset_of(limit)
      write_bucket(limit, reset)
      return limit.tokens, reset
    end,

    -- Leaves the bucket as it is, but mends two things: written in what is now the future (the clock has stepped back) it
    -- would neither refill nor expire in time, and without a TTL it would stay for ever.
    keep = function(limit)
      local reset = reset_of(limit)
      if limit.ahead then
        write_bucket(limit, reset)
      else
        ensure_expiry(limit.key, reset)
      end
      return limit.tokens, reset
    end,
  }
end
