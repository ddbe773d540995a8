-- marks: counters of gcra under limits that keep holds. The same steps as ../holds.lua.
--
-- Parameters: as in gcra.lua.
-- Marks: as in the head of ../holds.lua, each with instant (7) and backlog (7, 4), as one string.
do
  local sub, floor = string.sub, math.floor
  local MARK_BYTES, MAX_MARKS = 18, 32
  -- Offsets in the parameters.
  local DEEPEST, SHORT = 41, 52
  -- As in gcra.lua.
  local MAX_BACKLOG, LAST_16TH, SHORT_UNTIL = 9007199254740992, 68719476736, 4503599627370496
  local MARKS = '>' .. string.rep('I7I7I4', MAX_MARKS + 1)

  local function lower(one, one_part, other, other_part)
    return one < other or (one == other and one_part < other_part)
  end

  local function minus(whole, part, other, other_part, l)
    if not lower(other, other_part, whole, part) then
      return 0, 0
    elseif part >= other_part then
      return whole - other, part - other_part
    end
    return whole - other - 1, part - other_part + l
  end

  -- Returns the time that hits cost; a bound of all backlogs if it is longer than that.
  local function times(hits, l, p)
    local parts, part = hits * p
    if parts < MAX_BACKLOG then
      part = parts % l
      return (parts - part) / l, part
    elseif p / l * hits >= MAX_BACKLOG then
      return MAX_BACKLOG, 0
    end
    return multiply_divide(p, hits, l)
  end

  local function mark(marks, i)
    return unpack_from('>I7I7I4', marks, MARK_BYTES * (i - 1) + 1)
  end

  -- Merges the two of too many marks that are nearest in time: the later instant, the lower backlog.
  local function merged(marks)
    local numbers, nearest, gap = { unpack_from(MARKS, marks) }, 1, math.huge
    for i = 1, MAX_MARKS do
      local between = numbers[3 * i + 1] - numbers[3 * i - 2]
      if between < gap then
        nearest, gap = i, between
      end
    end
    local at = MARK_BYTES * (nearest - 1)
    return sub(marks, 1, at) .. sub(marks, at + MARK_BYTES + 1, at + MARK_BYTES + 7)
      .. sub(marks, at + 8, at + MARK_BYTES) .. sub(marks, at + 2 * MARK_BYTES + 1)
  end

  -- Adds the backlog at an instant, and drops the marks that are not below it.
  local function add(marks, instant, whole, part)
    local count = #marks / MARK_BYTES
    while count > 0 do
      local _, other, other_part = mark(marks, count)
      if lower(other, other_part, whole, part) then
        break
      end
      count = count - 1
    end
    marks = sub(marks, 1, MARK_BYTES * count) .. pack('>I7I7I4', instant, whole, part)
    return count < MAX_MARKS and marks or merged(marks)
  end

  -- Returns the least backlog since `after`, where it is `whole` and `part` now.
  local function low(marks, after, whole, part)
    for i = 1, #marks / MARK_BYTES do
      local instant, other, other_part = mark(marks, i)
      if instant > after then
        if lower(other, other_part, whole, part) then
          return other, other_part
        end
        break
      end
    end
    return whole, part
  end

  -- Lowers the marks later than `after`, and drops those that a later one undercuts or equals.
  local function lowered(marks, after, by, by_part, l)
    local kept, last, last_part = {}, math.huge, 0
    for i = #marks / MARK_BYTES, 1, -1 do
      local instant, whole, part = mark(marks, i)
      if instant > after then
        whole, part = minus(whole, part, by, by_part, l)
      end
      if lower(whole, part, last, last_part) then
        last, last_part = whole, part
        table.insert(kept, 1, pack('>I7I7I4', instant, whole, part))
      end
    end
    return table.concat(kept)
  end

  marked = { add = add }

  -- Returns the latest instant of a value and the backlog at it; nothing if it cannot be read.
  function marked.read(at, value)
    local head, bound = unpack_from('>I5I4', text, at + SHORT)
    if #value == 12 then
      local tag, high, low = unpack_from('>BI6I5', value)
      local whole = low % LAST_16TH - head
      if tag == 24 and whole >= 0 and whole < bound then
        return high * 16 + floor(low / LAST_16TH), whole, 0
      end
    elseif #value == 23 then
      local tag, last, whole, part, amount = unpack_from('>BI7I7I4I4', value)
      if tag == 25 and amount == unpack_from('>I4', text, at) then
        return last, whole, part
      end
    end
  end

  -- Puts a charge of `held` hits to `cost`, where the backlog is `whole` and `part` at `instant`, and
  -- the marks reach back to the charge if `is_covered`. Returns the new value and the marks.
  function marked.correct(at, instant, whole, part, marks, is_covered, held, cost, charged_at)
    local limit, l, p = unpack_from('>I4I4I7', text, at)
    if cost > held then
      marks = add(marks, instant, whole, part)
      local deepest, deepest_part = unpack_from('>I7I4', text, at + DEEPEST)
      -- The maximum backlog bounds the addition, not the existing backlog.
      if lower(whole, part, deepest, deepest_part) then
        local by, by_part = times(cost - held, l, p)
        whole, part = whole + by, part + by_part
        if part >= l then
          whole, part = whole + 1, part - l
        end
        if lower(deepest, deepest_part, whole, part) then
          whole, part = deepest, deepest_part
        end
      end
    elseif cost < held and is_covered then
      local least, least_part = low(marks, charged_at, whole, part)
      if least + least_part > 0 then
        local by, by_part = times(held - cost, l, p)
        if lower(least, least_part, by, by_part) then
          by, by_part = least, least_part
        end
        whole, part = minus(whole, part, by, by_part, l)
        marks = add(lowered(marks, charged_at, by, by_part, l), instant, whole, part)
      end
    end
    local head, bound = unpack_from('>I5I4', text, at + SHORT)
    if part == 0 and whole < bound and instant < SHORT_UNTIL then
      local low_bits = instant % 16
      return pack('>BI6I5', 24, (instant - low_bits) / 16, low_bits * LAST_16TH + head + whole), marks
    end
    return pack('>BI7I7I4I4', 25, instant, whole, part, limit), marks
  end
end
