-- A key without an expiry gets one: it would stay for ever. (One that isn't there stays so.)
local function ensure_expiry(key, milliseconds)
  if redis.call('PTTL', key) == -1 then
    redis.call('PEXPIRE', key, math.max(milliseconds, 1))
  end
end
