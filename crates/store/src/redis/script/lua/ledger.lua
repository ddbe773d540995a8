-- ledger: the data of both sliding algorithms: positions in ascending order, each with the running
-- total of hits up to and including it. The hits since any position are one subtraction after a
-- binary search.
--
-- Packed: count (2), total before the oldest (4, 7 if wide), then position (7) and total (4 or 7)
--   of
-- each entry. What is before the first entry has 5 bytes fewer than an entry. The ledgers of one
-- value are all wide or none is. A ledger is given by its value and the offset of its first entry.
local byte, sub, floor, min = string.byte, string.sub, math.floor, math.min
-- Whether the current value is wide, the bytes of an entry and its format.
local is_wide, ENTRY, FORM = false, 11, '>I7I4'

-- Returns the first entry of a ledger with at least `position`, and the total before it. `base` is
-- the total before the first entry, `count` the last entry, `start` the offset of the first one.
local function since(value, start, count, base, position)
  if count == 0 then
    return 1, base
  end
  -- It is almost always the first or the second.
  local other, total = unpack_from(FORM, value, start)
  if other >= position then
    return 1, base
  elseif count == 1 then
    return 2, total
  end
  base = total
  other, total = unpack_from(FORM, value, start + ENTRY)
  if other >= position then
    return 2, base
  end
  -- Entry low - 1 is before `position`, and its total is known.
  local low, high = 3, count + 1
  base = total
  while low < high do
    local middle = floor((low + high) / 2)
    other, total = unpack_from(FORM, value, start + (middle - 1) * ENTRY)
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
    local other, up_to = unpack_from(FORM, value, start + (middle - 1) * ENTRY)
    if up_to >= least then
      high, position, total = middle, other, up_to
    else
      low = middle + 1
    end
  end
  return low, position, total
end

-- Returns a ledger from entry `first` on, reduced to `total` since hits were refunded, newest
-- first. `before` is the total before entry `first`.
local function shortened(value, start, first, count, before, total)
  if total <= before then
    return pack(is_wide and '>I2I7' or '>I2I4', 0, before)
  end
  local last, position = reaching(value, start, first, count, total)
  return pack(is_wide and '>I2I7' or '>I2I4', last - first + 1, before)
    .. sub(value, start + (first - 1) * ENTRY, start + (last - 1) * ENTRY - 1)
    .. pack(FORM, position, total)
end

-- Created on first use, since it is rare.
ledgers = function()
  local function set_wide(wide)
    is_wide, ENTRY, FORM = wide, wide and 14 or 11, wide and '>I7I7' or '>I7I4'
  end

  -- Returns some entries with `by` added to their totals.
  local function shifted(value, start, first, last, by)
    local parts = {}
    for i = first, last do
      local position, total = unpack_from(FORM, value, start + (i - 1) * ENTRY)
      parts[i - first + 1] = pack(FORM, position, total + by)
    end
    return table.concat(parts)
  end

  -- Returns a ledger without `hits` hits of entry i and, if it has fewer, of later ones. `before`
  -- is the total before entry i. Entries without hits are dropped. Only differences of totals
  -- count, so that the fewer of the others are rewritten.
  local function without(value, start, count, base, i, before, hits)
    local from = reaching(value, start, i, count, before + hits + 1)
    local dropped = from - i
    if i - 1 < count - from then
      return pack(is_wide and '>I2I7' or '>I2I4', count - dropped, base + hits) .. shifted(value, start, 1, i - 1, hits)
        .. sub(value, start + (from - 1) * ENTRY, start + count * ENTRY - 1)
    end
    return pack(is_wide and '>I2I7' or '>I2I4', count - dropped, base) .. sub(value, start, start + (i - 1) * ENTRY - 1)
      .. shifted(value, start, from, count, -hits)
  end

  -- Returns a value whose totals begin at 0, and are wide if `hits` more would not be short. Its
  -- ledgers begin at offset 9.
  local function rebased(value, hits)
    local at, most = 9, 0
    while at < #value do
      local count, base = unpack_from(is_wide and '>I2I7' or '>I2I4', value, at)
      at = at + ENTRY - 5 + count * ENTRY
      -- Without entries, this is the total before them.
      local _, total = unpack_from(FORM, value, at - ENTRY)
      most = max(most, total - base)
    end
    local wide = is_wide or most + hits > MAX_SHORT
    local form, head_form = wide and '>I7I7' or '>I7I4', wide and '>I2I7' or '>I2I4'
    local tag = byte(value)
    local parts = { pack('B', wide ~= is_wide and tag + 1 or tag) .. sub(value, 2, 8) }
    at = 9
    while at < #value do
      local count, base = unpack_from(is_wide and '>I2I7' or '>I2I4', value, at)
      parts[#parts + 1] = pack(head_form, count, 0)
      at = at + ENTRY - 5
      for _ = 1, count do
        local position, total = unpack_from(FORM, value, at)
        parts[#parts + 1] = pack(form, position, total - base)
        at = at + ENTRY
      end
    end
    return table.concat(parts)
  end

  -- Returns the value of a counter without hits, with as many ledgers.
  local function unused(tag, ledgers)
    return pack('>BI7', tag, 0) .. string.rep(pack('>I2I4', 0, 0), ledgers)
  end

  -- Returns a value with another latest instant. Its ledgers stay as they are.
  local function touched(value, instant)
    return sub(value, 1, 1) .. pack('>I7', instant) .. sub(value, 9)
  end

  local functions =
    { set_wide = set_wide, without = without, rebased = rebased, unused = unused, touched = touched }
  ledgers = function()
    return functions
  end
  return functions
end
