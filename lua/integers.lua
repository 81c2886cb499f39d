-- Whole numbers. Lua in Redis has doubles alone, and they hold integers exactly below 2^53.
local EXACT = 2 ^ 53

-- a * b / c for integers in 0 .. 2^53-1, c above 0: the quotient rounded down, and the remainder. A quotient of 2^53
-- and more may be off, but is never below 2^53.
local function muldiv(a, b, c)
  local product = a * b
  if product < EXACT then
    local rest = product % c
    return (product - rest) / c, rest
  end
  -- The product isn't exact: add a / c up by doubling, with every sum below c and so below 2^53.
  local term_rest = a % c
  local term = (a - term_rest) / c
  local quotient, rest = 0, 0
  while b > 0 do
    local half = math.floor(b / 2)
    if b > half * 2 then
      quotient = quotient + term
      if rest >= c - term_rest then
        rest = rest - (c - term_rest)
        quotient = quotient + 1
      else
        rest = rest + term_rest
      end
    end
    term = term * 2
    if term_rest >= c - term_rest then
      term_rest = term_rest - (c - term_rest)
      term = term + 1
    else
      term_rest = term_rest * 2
    end
    b = half
  end
  return quotient, rest
end

-- The same quotient, rounded up.
local function muldiv_up(a, b, c)
  local quotient, rest = muldiv(a, b, c)
  return rest > 0 and quotient + 1 or quotient
end

-- Whether a stored value is an integer in 0 .. 2^53-1. "nan", "1e300", "-1" and "0.5" are numbers to Lua, but none to go
-- on from.
local function whole(number)
  return number and number >= 0 and number < EXACT and number % 1 == 0
end
