-- The leaky bucket as a queue: what it admits is what a token bucket admits, and an admitted request is to wait as long as
-- that bucket would have taken to be full before it. The same as src/core/src/limit/leaky_bucket.rs.
--
-- Stored: as the token bucket's.
local function leaky_bucket()
  local bucket = token_bucket()

  return {
    check = function(limit)
      bucket.check(limit)
      if limit.status == ALLOWED and limit.cost > 0 then
        limit.retry = bucket.reset(limit)
      end
    end,
    charge = bucket.charge,
    keep = bucket.keep,
  }
end
