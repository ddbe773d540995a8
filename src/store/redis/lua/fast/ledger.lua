-- ledger: where the sliding algorithms find what they need of the ledgers of ../ledger.lua, of
-- which they change only the ends.
local ENTRY = 11
local byte, sub, floor, min = string.byte, string.sub, math.floor, math.min

-- The first entry of a ledger whose position is at least `position`, from entry `i` on; the total
-- before it. `base` is the total before entry i, `count` the last entry, `start` where the first
-- one begins. Nearly always it is the first or the second.
local function since(value, start, i, count, base, position)
  if i > count then
    return i, base
  end
  local other, total = unpack_from('>I7I4', value, start + (i - 1) * ENTRY)
  if other >= position then
    return i, base
  end
  i, base = i + 1, total
  if i > count then
    return i, base
  end
  other, total = unpack_from('>I7I4', value, start + (i - 1) * ENTRY)
  if other >= position then
    return i, base
  end
  -- Of entry low - 1 it is known that it is before, and its total.
  local low, high = i + 1, count + 1
  base = total
  while low < high do
    local middle = floor((low + high) / 2)
    other, total = unpack_from('>I7I4', value, start + (middle - 1) * ENTRY)
    if other >= position then
      high = middle
    else
      low, base = middle + 1, total
    end
  end
  return low, base
end

-- The first entry from `low` on, and its position and total, whose total is at least `least`; count
-- + 1 alone where there is none.
local function reaching(value, start, low, count, least)
  local high = count + 1
  local position, total
  while low < high do
    local middle = floor((low + high) / 2)
    local other, up_to = unpack_from('>I7I4', value, start + (middle - 1) * ENTRY)
    if up_to >= least then
      high, position, total = middle, other, up_to
    else
      low = middle + 1
    end
  end
  return low, position, total
end

-- The count, the total before the oldest and the entries of a ledger from entry `first` on,
-- `before` being the total before it, whose total is to be `total`: less than it was, since hits
-- were given back, newest first.
local function shortened(value, start, first, count, before, total)
  if total <= before then
    return pack('>I2I4', 0, before)
  end
  local last, position = reaching(value, start, first, count, total)
  return pack('>I2I4', last - first + 1, before)
    .. sub(value, start + (first - 1) * ENTRY, start + (last - 1) * ENTRY - 1)
    .. pack('>I7I4', position, total)
end
