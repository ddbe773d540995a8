-- sliding_window: the same steps as ../sliding_window.lua.
--
-- Parameters: as in ../sliding_window.lua.
-- Value: 20, last us (7), a ledger for each window; positions are bucket numbers.
do
  -- For each window: amount, period, width of a bucket; offset of the entries of its ledger, their
  -- number, the first that counts, the total before it, the total of all, the newest position; the
  -- current bucket, the hits that count.
  local limits, periods, widths = {}, {}, {}
  local starts, counts, firsts, befores, totals, newests = {}, {}, {}, {}, {}, {}
  local currents, used = {}, {}

  -- Hits of the oldest bucket that no longer count.
  local function share_gone(value, i, instant, buckets)
    local first, start, width = firsts[i], starts[i], widths[i]
    if first > counts[i] then
      return 0
    end
    local index, total = unpack_from('>I7I4', value, start + (first - 1) * ENTRY)
    if index + buckets ~= currents[i] then
      return 0
    end
    local hits = total - befores[i]
    local share, rest = multiply_divide(hits, width - instant % width, width)
    return hits - share - (rest > 0 and 1 or 0)
  end

  -- Evaluates each window. Returns true if the value can be read and the hits fit in each, false if
  -- they do not fit in one.
  local function look(at, value, hits, instant, count, buckets, weighted)
    local fits, place = true, 9
    for i = 1, count do
      local limit, period, width = unpack_from('>I4I7I7', text, at)
      at = at + 18
      local entries, base, newest, total = 0, 0, -1, 0
      if value then
        if place + 5 > #value then
          return nil
        end
        entries, base = unpack_from('>I2I4', value, place)
        total = base
      end
      local start = place + 6
      place = start + entries * ENTRY
      local current = (instant - instant % width) / width
      local first, before = 1, base
      if entries > 0 then
        if place - 1 > #value then
          return nil
        end
        newest, total = unpack_from('>I7I4', value, place - ENTRY)
        first, before = since(value, start, 1, entries, base, current - buckets)
      end
      limits[i], periods[i], widths[i], starts[i], counts[i], firsts[i] = limit, period, width, start, entries, first
      befores[i], totals[i], newests[i], currents[i] = before, total, newest, current
      local counted = total - before
      if weighted == 1 then
        counted = counted - share_gone(value, i, instant, buckets)
      end
      used[i] = counted
      fits = fits and counted + hits <= limit
    end
    if value and place ~= #value + 1 then
      return nil
    end
    return fits
  end

  -- Returns the value with the hits, and the time until which it matters if that has changed.
  -- Returns nothing if it would be too long.
  local function charged(value, hits, instant, count, buckets)
    local new, lives_until, is_new = pack('>BI7', 20, instant), 0, false
    for i = 1, count do
      local first, entries, start, current, total = firsts[i], counts[i], starts[i], currents[i], totals[i] + hits
      if total > MAX_SHORT then
        return nil
      end
      local kept = entries - first + 1
      local is_merged = newests[i] == current
      if is_merged then
        kept = kept - 1
      else
        is_new = true
        newests[i] = current
      end
      new = new .. pack('>I2I4', kept + 1, befores[i])
        .. (kept > 0 and sub(value, start + (first - 1) * ENTRY, start + (first + kept - 1) * ENTRY - 1) or '')
        .. pack('>I7I4', current, total)
      lives_until = max(lives_until, (current + buckets + 1) * widths[i])
      used[i], totals[i] = used[i] + hits, total
    end
    return new, (is_new or renews) and lives_until
  end

  -- Returns the value with hits refunded; nothing if no window has any.
  local function refunded(value, hits, instant, count)
    local new, took = pack('>BI7', 20, instant), false
    for i = 1, count do
      local start, entries, total = starts[i], counts[i], totals[i]
      local part = min(hits, total - befores[i])
      if part > 0 then
        took = true
        local base = unpack_from('>I4', value, start - 4)
        new = new .. shortened(value, start, 1, entries, base, total - part)
      else
        new = new .. sub(value, start - 6, start + entries * ENTRY - 1)
      end
    end
    return took and new
  end

  -- Returns the time until `hits` fit in window i, in which they do not fit now: until the last
  -- bucket that must expire has expired.
  local function fits_after(value, i, hits, instant, buckets, weighted, is_written)
    local room, total, start, width = limits[i] - hits, totals[i], starts[i], widths[i]
    local first, last = firsts[i], counts[i]
    if is_written and newests[i] == currents[i] and last > 0 then
      -- The newest bucket may have been charged.
      local newest = unpack_from('>I7', value, start + (last - 1) * ENTRY)
      last = newest == currents[i] and last - 1 or last
    end
    local entry, index, up_to = reaching(value, start, first, last, total - room)
    if not index then
      index, up_to = newests[i], total
    end
    local leaves = (index + buckets + 1) * width
    if weighted == 1 then
      local before = befores[i]
      if entry > first then
        before = unpack_from('>I4', value, start + (entry - 1) * ENTRY - 4)
      end
      -- It counts ceil(k * left / b) while `left` of it is in the period: at most `room` iff left <=
      -- room * b / k.
      leaves = leaves - multiply_divide(room - (total - up_to), width, up_to - before)
    end
    return leaves - instant
  end

  judges[2] = function(at, value, hits, writes)
    local count, buckets, weighted
    count, buckets, weighted, at = unpack_from('>BI2B', text, at)
    local after, instant = at + 18 * count, now
    if value then
      if #value < 8 or byte(value) ~= 20 then
        return after
      end
      instant = max(now, (unpack_from('>I7', value, 2)))
    end
    local fits = look(at, value, hits, instant, count, buckets, weighted)
    if fits == nil then
      return after
    end
    local allowed, new, lives_until = fits or writes == REFUND
    if writes == REFUND then
      new = value and refunded(value, hits, instant, count)
      if new then
        value = new
        look(at, value, 0, instant, count, buckets, weighted)
      end
      lives_until = instant
      for i = 1, count do
        lives_until = max(lives_until, (newests[i] + buckets + 1) * widths[i])
      end
    elseif writes == BOTH or writes == (fits and 1 or 2) then
      new, lives_until = charged(value, hits, instant, count, buckets)
      if not new then
        return after
      end
    end
    local left, reset, retry, window, fewest
    for i = 1, count do
      local limit = limits[i]
      local room, ends, again = max(limit - used[i], 0), 0, ABSENT
      if totals[i] > befores[i] then
        ends = (newests[i] + buckets + 1) * widths[i] - instant
      end
      if not allowed and hits <= limit then
        again = used[i] + hits <= limit and 0 or fits_after(value, i, hits, instant, buckets, weighted, new ~= nil)
      end
      if i == 1 then
        left, reset, retry, window, fewest = room, ends, again, 1, room
      else
        fewest = min(fewest, room)
        local rank, best = -room, -left
        if not allowed then
          rank, best = again, retry
        end
        if rank > best or (rank == best and periods[i] > periods[window]) then
          left, reset, retry, window = room, ends, again, i
        end
      end
    end
    return after, instant, allowed, new, lives_until, fewest, reset, retry, window - 1
  end
end
