-- ledger: lookups in the ledgers of ../ledger.lua for the sliding algorithms, which change only the
-- ends of a ledger.
local ENTRY = 11
local byte, sub, floor, min = string.byte, string.sub, math.floor, math.min

-- Returns the first entry of a ledger with at least `position`, from entry `i` on, and the total
-- before it. `base` is the total before entry i, `count` the last entry, `start` the offset of the
-- first one. It is almost always the first or the second.
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
  -- Entry low - 1 is before `position`, and its total is known.
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

-- Returns the first entry from `low` on with a total of at least `least`, its position and total;
-- only count + 1 if there is none.
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

-- Returns the count, the total before the oldest, and the entries of a ledger from entry `first`
-- on, reduced to `total` since hits were refunded, newest first. `before` is the total before entry
-- `first`.
local function shortened(value, start, first, count, before, total)
  if total <= before then
    return pack('>I2I4', 0, before)
  end
  local last, position = reaching(value, start, first, count, total)
  return pack('>I2I4', last - first + 1, before)
    .. sub(value, start + (first - 1) * ENTRY, start + (last - 1) * ENTRY - 1)
    .. pack('>I7I4', position, total)
end
