-- Stands in the clock's place: time is the last argument, and so are expiries, which are kept beside each key in KEY:expires.
local now = tonumber(ARGV[#ARGV])
local real = redis
for _, key in ipairs(KEYS) do
  local expires = real.call('GET', key .. ':expires')
  if expires and tonumber(expires) <= now then
    real.call('DEL', key, key .. ':expires')
  end
end
local redis = {
  error_reply = real.error_reply,
  call = function(command, key, ...)
    local function expire(milliseconds)
      return real.call('SET', key .. ':expires', string.format('%.0f', math.min(now + milliseconds, 2 ^ 53 - 1)))
    end
    if command == 'PEXPIRE' then
      return expire(...)
    elseif command == 'SET' and select(2, ...) == 'PX' then
      expire(select(3, ...))
      return real.call('SET', key, (...))
    elseif command == 'PTTL' then
      if real.call('EXISTS', key) == 0 then
        return -2
      end
      local expires = real.call('GET', key .. ':expires')
      return expires and expires - now or -1
    end
    return real.call(command, key, ...)
  end,
}
