-- A client of its own for each request: its name is the time at which wrk began and a number.
local began, count = string.format('%d-%s', os.time(), tostring({}):match('0x(%x+)')), 0

request = function()
  count = count + 1
  wrk.headers['x-api-key'] = 'client-' .. began .. '-' .. count
  return wrk.format()
end
