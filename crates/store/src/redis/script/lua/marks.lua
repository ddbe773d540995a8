-- marks: counters of gcra under limits that keep holds. The same steps as
-- crates/core/src/algorithm/marks.rs and gcra/marked.rs.
--
-- Parameters and values: as in gcra.lua.
-- Marks: as in the head of holds.lua, each with instant (7) and backlog (7, 4), as one string.
do
  local sub, floor = string.sub, math.floor
  local MARK_BYTES, MAX_MARKS, MAX_MERGED, GROUPS = 18, 128, 96, 32
  local rate = rates()
  local lower, minus = rate.lower, rate.minus

  local function mark(marks, i)
    return unpack_from('>I7I7I4', marks, MARK_BYTES * (i - 1) + 1)
  end

  -- Returns some marks.
  local function slice(marks, from, to)
    return sub(marks, MARK_BYTES * (from - 1) + 1, MARK_BYTES * to)
  end

  -- Returns true if a mark is followed by the same mark.
  local function is_twice(marks, i)
    return slice(marks, i, i) == slice(marks, i + 1, i + 1)
  end

  -- Excludes marks from merging, as crates/core/src/algorithm/marks.rs does.
  local function sealed(marks)
    local count = #marks / MARK_BYTES
    if count == 0 or count > 1 and is_twice(marks, count - 1) then
      return marks
    end
    return marks .. slice(marks, count, count)
  end

  -- Returns the marks up to number `count` without the last ones that are not below a backlog. If
  -- the last sealed one is among those, the others stay sealed.
  local function below(marks, count, whole, part)
    local was_sealed = false
    while count > 0 do
      local _, other, other_part = mark(marks, count)
      if lower(other, other_part, whole, part) then
        break
      end
      count = count - 1
      was_sealed = was_sealed or count > 0 and is_twice(marks, count)
    end
    if count == #marks / MARK_BYTES then
      return marks
    end
    marks = slice(marks, 1, count)
    return was_sealed and sealed(marks) or marks
  end

  local function push(marks, instant, whole, part)
    marks = below(marks, #marks / MARK_BYTES, whole, part)
    local count = #marks / MARK_BYTES
    -- A lower mark of the same instant suffices.
    if count > 0 and mark(marks, count) == instant then
      return marks
    end
    return marks .. pack('>I7I7I4', instant, whole, part)
  end

  -- Merges neighbors of too many marks to groups, as crates/core/src/algorithm/marks.rs does.
  local function merged(marks)
    local count = #marks / MARK_BYTES
    local last_sealed, widest = count - 1, floor((mark(marks, count) - mark(marks, 1)) / GROUPS)
    while last_sealed > 0 and not is_twice(marks, last_sealed) do
      last_sealed = last_sealed - 1
    end
    local i = last_sealed > 0 and last_sealed + 2 or 1
    -- The first group takes the place of mark i.
    local groups = slice(marks, 1, i)
    while i <= count do
      local begun, whole, part = mark(marks, i)
      local following, longest, spanned = i + 1, math.min(widest, whole), 0
      while following < count do
        local span = mark(marks, following + 1) - begun
        if span > longest then
          break
        end
        following, spanned = following + 1, span
      end
      groups = push(groups, begun, whole - spanned, part)
      i = following
    end
    count = #groups / MARK_BYTES
    if count <= MAX_MERGED then
      return groups
    end
    -- Charges before the oldest mark that is kept find the lowest backlog.
    local first, _, lowest, lowest_part = count - MAX_MERGED + 1, mark(groups, 1)
    local oldest = pack('>I7I7I4', mark(groups, first), lowest, lowest_part)
    return oldest .. oldest .. slice(groups, first + 1, count)
  end

  -- Adds the backlog at an instant, and drops the marks that are not below it.
  local function add(marks, instant, whole, part)
    marks = push(marks, instant, whole, part)
    return #marks <= MARK_BYTES * MAX_MARKS and marks or merged(marks)
  end

  -- Returns the number of the first mark later than an instant.
  local function first_after(marks, instant)
    local low, high = 1, #marks / MARK_BYTES + 1
    while low < high do
      local middle = floor((low + high) / 2)
      if mark(marks, middle) > instant then
        high = middle
      else
        low = middle + 1
      end
    end
    return low
  end

  -- Returns the least backlog since `after`, if it is `whole` and `part` now.
  local function low(marks, after, whole, part)
    local first = first_after(marks, after)
    if first <= #marks / MARK_BYTES then
      local _, other, other_part = mark(marks, first)
      if lower(other, other_part, whole, part) then
        return other, other_part
      end
    end
    return whole, part
  end

  -- Lowers the marks later than `after`, and drops the earlier ones that are no longer below.
  local function lowered(marks, after, by, by_part, l)
    local first, later = first_after(marks, after), {}
    for i = first, #marks / MARK_BYTES do
      local instant, whole, part = mark(marks, i)
      whole, part = minus(whole, part, by, by_part, l)
      if i == first then
        later[1] = below(marks, first - 1, whole, part)
      end
      later[#later + 1] = pack('>I7I7I4', instant, whole, part)
    end
    return first > #marks / MARK_BYTES and marks or table.concat(later)
  end

  -- Returns the backlog of a value at an instant, the limit that it is based on, and its l and p.
  local function backlog(at, value, instant)
    local limit, l, p = unpack_from('>I4I4I7', text, at)
    local last, whole, part, amount = instant, 0, 0, limit
    if value then
      last, whole, part, amount = rate.read(string.byte(value) >= WITH_DATA and beside().split(value) or value)
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

  -- Returns the backlog of a value at an instant, its l and p, the limit that it is based on, and
  -- the marks: all converted to the limit's rate, if they can be.
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
    kept = table.concat(kept)
    return own, own_part, l, p, limit, amount > limit and sealed(kept) or kept
  end

  marked = {}

  -- Returns the marks of a counter to which hits are charged.
  function marked.charged(at, own)
    local whole, part, marks, _ = own.whole, own.part, own.marks, nil
    if not whole or own.amount ~= unpack_from('>I4', text, at) then
      whole, part, _, _, _, marks = settled(at, own.value, own.instant, marks)
    end
    return add(marks, own.instant, whole, part)
  end

  -- Returns the marks of a counter from which hits are refunded, by its new value.
  function marked.refunded(at, own, new)
    local _, _, _, _, _, marks = settled(at, own.value, own.instant, own.marks)
    local whole, part = backlog(at, new, own.instant)
    return sealed(add(marks, own.instant, whole, part))
  end

  -- Returns the marks of a counter of which a part of a charge is taken back that they do not reach,
  -- by its new value.
  function marked.given_back(at, own, new)
    local whole, part, l, _, amount, marks = settled(at, own.value, own.instant, own.marks)
    local left, left_part, of = backlog(at, new, own.instant)
    if of == amount then
      local by, by_part = minus(whole, part, left, left_part, l)
      marks = lowered(marks, charged_at, by, by_part, l)
    else
      marks = ''
    end
    return add(marks, own.instant, left, left_part)
  end

  -- Undoes the part of a charge of hits that is still in the backlog, by the marks since. Returns
  -- the new value and the marks; no value if no hits of it are left.
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
