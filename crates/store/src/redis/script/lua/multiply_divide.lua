-- Returns floor(a * b / c) and the remainder, for a < 2^53 and b, c < 2^50, if the quotient is
-- below 2^53. Processes two bits of `a` at a time, from the top, so that all intermediate values
-- are exact in a double.
local function multiply_divide(a, b, c)
  local unit = 1
  while unit * 4 <= a do
    unit = unit * 4
  end
  local quotient, rest = 0, 0
  while unit >= 1 do
    local digit = math.floor(a / unit)
    a = a - digit * unit
    unit = unit / 4
    rest = rest * 4 + digit * b
    local whole = math.floor(rest / c)
    quotient = quotient * 4 + whole
    rest = rest - whole * c
  end
  return quotient, rest
end
