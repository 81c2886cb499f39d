-- One page of a rule's live overrides, so that no hash is too big for one reply. Reads, and charges nothing.
-- KEYS[1] the hash; ARGV[1] cursor, 0 at first; ARGV[2] how many fields a page has, about;
-- ARGV[3] and ARGV[4] the most bytes of a field and of a value.
-- Reply: the next cursor, 0 at the end; then field and value in turns. Of a field that is too long there is the start,
-- of such a value nothing: neither is a good one.
local page = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
local longest_field, longest_value = tonumber(ARGV[3]), tonumber(ARGV[4])
local reply = { page[1] }
for i = 1, #page[2], 2 do
  local field, value = page[2][i], page[2][i + 1]
  if #field > longest_field or #value > longest_value then
    field, value = field:sub(1, longest_field), ''
  end
  reply[i + 1], reply[i + 2] = field, value
end
return reply
