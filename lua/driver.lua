-- Checks all limits, then charges all of them or none, so that no request pays for what it isn't let in to.
-- KEYS, ARGV and the reply: README.md beside this file.
local algorithms = { tb = token_bucket }

local limits, all_allowed = {}, true
for i, key in ipairs(KEYS) do
  local first = (i - 1) * 5
  local limit = {
    key = key,
    algorithm = algorithms[ARGV[first + 1]],
    count = integer(ARGV[first + 2]),
    window = integer(ARGV[first + 3]),
    burst = integer(ARGV[first + 4]),
    cost = integer(ARGV[first + 5]),
  }
  if not (limit.algorithm and limit.count and limit.window and limit.burst and limit.cost) then
    return redis.error_reply('ERR weir: bad arguments for limit ' .. i)
  end
  limits[i] = limit
end

for _, limit in ipairs(limits) do
  limit.algorithm.check(limit)
  all_allowed = all_allowed and limit.status == ALLOWED
end

local reply = {}
for _, limit in ipairs(limits) do
  if all_allowed and limit.cost > 0 then
    limit.algorithm.charge(limit)
  else
    limit.algorithm.keep(limit)
  end
  for _, number in ipairs({ limit.status, limit.remaining, limit.retry, limit.reset }) do
    reply[#reply + 1] = number
  end
end
return reply
