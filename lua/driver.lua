-- Checks all limits, then charges all of them or none, so that no request pays for what it isn't let in to.
-- KEYS, ARGV and the reply: README.md beside this file.
-- An algorithm's functions are made when a limit asks for it: a script makes all that it defines anew in every call.
local algorithms = {
  tb = token_bucket,
  fw = fixed_window,
  sl = sliding_log,
  sw = sliding_window,
  lb = leaky_bucket,
}
local made = {}

local limits, all_allowed = {}, true
for i = 1, #KEYS do
  local at = i * 5
  local code = ARGV[at - 4]
  if algorithms[code] and not made[code] then
    made[code] = algorithms[code]()
  end
  local limit = {
    key = KEYS[i],
    algorithm = made[code],
    count = tonumber(ARGV[at - 3]),
    window = tonumber(ARGV[at - 2]),
    burst = tonumber(ARGV[at - 1]),
    cost = tonumber(ARGV[at]),
    -- What the check says. What an algorithm keeps for itself goes in here too.
    status = DENIED,
    retry = 0,
  }
  if not (limit.algorithm and limit.count and limit.window and limit.burst and limit.cost) then
    return redis.error_reply('ERR weir: bad arguments for limit ' .. i)
  end
  limits[i] = limit
end

for i = 1, #limits do
  local limit = limits[i]
  limit.algorithm.check(limit)
  all_allowed = all_allowed and limit.status == ALLOWED
end

local reply = {}
for i = 1, #limits do
  local limit, at = limits[i], i * 4
  local act = all_allowed and limit.cost > 0 and limit.algorithm.charge or limit.algorithm.keep
  local remaining, reset = act(limit)
  -- One by one and in order: this grows the table as an array.
  reply[at - 3] = limit.status
  reply[at - 2] = remaining
  reply[at - 1] = limit.retry
  reply[at] = reset
end
return reply
