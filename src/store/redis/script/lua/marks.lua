-- marks: counters of gcra under limits that keep holds. The same steps as src/algorithm/marks.rs and
-- gcra/marked.rs.
--
-- Parameters and values: as in gcra.lua.
-- Marks: as in the head of holds.lua, each with instant (7) and backlog (7, 4), as one string.
do
  local sub = string.sub
  local MARK_BYTES, MAX_MARKS = 18, 32
  local MARKS = '>' .. string.rep('I7I7I4', MAX_MARKS + 1)
  local rate = rates()
  local lower, minus = rate.lower, rate.minus

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

  -- Returns the backlog of a value at an instant, the limit that it is based on, and its l and p.
  local function backlog(at, value, instant)
    local limit, l, p = unpack_from('>I4I4I7', text, at)
    local last, whole, part, amount = instant, 0, 0, limit
    if value then
      last, whole, part, amount = rate.read(beside and string.byte(value) >= WITH_DATA and beside().split(value) or value)
    end
    whole = whole - (instant - last)
    if whole < 0 then
      whole, part = 0, 0
    end
    if amount ~= limit then
      l, p = rate.interval_of(amount, limit, l, p)
    end
    return whole, part, amount, l, p
  end

  -- Returns the backlog of a value at an instant, its l and p, the limit that it is based on, and the
  -- marks: all converted to the limit's rate, if they can be.
  local function settled(at, value, instant, marks)
    local whole, part, amount, of, per = backlog(at, value, instant)
    local limit, l, p = unpack_from('>I4I4I7', text, at)
    local own, own_part = rate.rescaled(whole, part, amount, of, limit, l)
    if not own or amount == limit then
      return whole, part, of, per, amount, marks
    end
    local kept = {}
    for i = 1, #marks / MARK_BYTES do
      local marked_at, other, other_part = mark(marks, i)
      other, other_part = rate.rescaled(other, other_part, amount, of, limit, l)
      if other then
        kept[#kept + 1] = pack('>I7I7I4', marked_at, other, other_part)
      end
    end
    return own, own_part, l, p, limit, table.concat(kept)
  end

  marked = {}

  -- Returns the marks of a value to which hits are charged at an instant.
  function marked.charged(at, value, instant, marks)
    local whole, part, _, _, _, own = settled(at, value, instant, marks)
    return add(own, instant, whole, part)
  end

  -- Returns a value and marks, both converted to the limit's rate if they can be.
  function marked.settle(at, value, instant, marks)
    local whole, part, _, _, amount, own = settled(at, value, instant, marks)
    return rate.written(instant, whole, part, amount), own
  end

  -- Returns the marks with the backlog of a value at an instant.
  function marked.add(at, value, instant, marks)
    local whole, part = backlog(at, value, instant)
    return add(marks, instant, whole, part)
  end

  -- Undoes the part of a charge of hits that is still in the backlog, by the marks since. Returns the
  -- new value and the marks; nothing if nothing is left of it.
  function marked.take_back(at, value, instant, marks, hits)
    local whole, part = backlog(at, value, instant)
    local least, least_part = low(marks, charged_at, whole, part)
    if hits == 0 or least + least_part == 0 then
      return nil
    end
    local l, p, amount
    whole, part, l, p, amount, marks = settled(at, value, instant, marks)
    local by, by_part = rate.times(hits, l, p)
    least, least_part = low(marks, charged_at, whole, part)
    if lower(least, least_part, by, by_part) then
      by, by_part = least, least_part
    end
    whole, part = minus(whole, part, by, by_part, l)
    marks = add(lowered(marks, charged_at, by, by_part, l), instant, whole, part)
    return rate.written(instant, whole, part, amount), marks
  end
end
