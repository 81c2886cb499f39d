-- The token bucket: up to `burst` tokens, `count` of them back per `window` milliseconds. The same step as
-- src/core/src/limit/token_bucket.rs, in the same whole numbers.
--
-- Stored: a hash of `tokens`, `frac` (what there is of the next token, in parts of one by the window) and `ts` (when that
-- was so, in milliseconds). A key that isn't there is a full bucket, and so is one whose fields aren't what is written here.
local token_bucket = {}

-- Milliseconds, rounded up, until `missing` tokens less `frac` have come back.
local function refill_wait(limit, missing, frac)
  local wait, rest = muldiv(missing, limit.window, limit.count)
  if rest > frac then
    wait = wait + 1
  else
    local over = frac - rest
    wait = wait - (over - over % limit.count) / limit.count
  end
  return math.min(wait, EXACT - 1)
end

local function fill(limit)
  limit.tokens, limit.frac = limit.burst, 0
end

local function write(limit)
  redis.call('HSET', limit.key, 'tokens', limit.tokens, 'frac', limit.frac, 'ts', now)
  redis.call('PEXPIRE', limit.key, math.max(1, limit.reset))
end

local function weigh(limit)
  limit.remaining = limit.tokens
  limit.reset = refill_wait(limit, limit.burst - limit.tokens, limit.frac)
end

-- What is in the bucket now, and what that means for the cost. Writes nothing.
function token_bucket.check(limit)
  local stored = redis.call('HMGET', limit.key, 'tokens', 'frac', 'ts')
  local tokens, frac, ts = integer(stored[1]), integer(stored[2]), integer(stored[3])
  if not (tokens and frac and ts and frac < limit.window) then
    fill(limit)
  else
    limit.ahead = ts > now
    local back, part = muldiv(limit.count, math.max(0, now - ts), limit.window)
    tokens, frac = tokens + back, frac + part
    if frac >= limit.window then
      tokens, frac = tokens + 1, frac - limit.window
    end
    limit.tokens, limit.frac = tokens, frac
    if tokens >= limit.burst then
      fill(limit)
    end
  end
  limit.retry = 0
  if limit.cost > limit.burst then
    limit.status = NEVER
  elseif limit.tokens >= limit.cost then
    limit.status = ALLOWED
  else
    limit.status = DENIED
    limit.retry = refill_wait(limit, limit.cost - limit.tokens, limit.frac)
  end
  weigh(limit)
end

-- Takes the cost, which is there.
function token_bucket.charge(limit)
  limit.tokens = limit.tokens - limit.cost
  weigh(limit)
  write(limit)
end

-- Leaves the bucket as it is, but mends two things: written in what is now the future (the clock has stepped back) it would
-- neither refill nor expire in time, and without a TTL it would stay for ever.
function token_bucket.keep(limit)
  if limit.ahead then
    write(limit)
  elseif redis.call('PTTL', limit.key) == -1 then
    redis.call('PEXPIRE', limit.key, math.max(1, limit.reset))
  end
end
