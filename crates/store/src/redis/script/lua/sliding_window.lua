-- sliding_window: at most limit hits in any period, counted in buckets. The same steps as
-- crates/core/src/algorithm/sliding_window.rs.
--
-- Parameters: windows (1), buckets (2), weighted (1), then for each window: limit (4), period us
--   (7), bucket width us (7).
-- Value: 20, 21 if wide, last us (7), a ledger for each window; positions are bucket numbers.
do
  -- For each window: amount, period, width of a bucket; offset of the entries of its ledger, their
  -- number, the total before the first, the first that counts, the total before it, the total of
  -- all, the newest position; the current bucket, the hits that count.
  local limits, periods, widths = {}, {}, {}
  local starts, counts, bases, firsts, befores, totals, newests = {}, {}, {}, {}, {}, {}, {}
  local currents, used = {}, {}

  -- Hits of the oldest bucket that no longer count.
  local function share_gone(value, i, instant, buckets)
    local first, start, width = firsts[i], starts[i], widths[i]
    if first > counts[i] then
      return 0
    end
    local index, total = unpack_from(FORM, value, start + (first - 1) * ENTRY)
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
      local entries, base, total, newest = 0, 0, 0
      if value then
        if place + ENTRY - 6 > #value then
          return nil
        end
        entries, base = unpack_from(is_wide and '>I2I7' or '>I2I4', value, place)
        total = base
      end
      local start = place + ENTRY - 5
      place = start + entries * ENTRY
      local current = (instant - instant % width) / width
      local first, before = 1, base
      if entries > 0 then
        if place - 1 > #value then
          return nil
        end
        newest, total = unpack_from(FORM, value, place - ENTRY)
        first, before = since(value, start, entries, base, current - buckets)
      end
      limits[i], periods[i], widths[i], starts[i], counts[i], firsts[i] = limit, period, width, start, entries, first
      bases[i], befores[i], totals[i], newests[i], currents[i] = base, before, total, newest, current
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

  -- Returns the value with the hits, and true if the time until which it matters has changed.
  -- Returns no value if it would be too long.
  local function charged(value, hits, instant, count, buckets)
    local new, is_new = pack('>BI7', is_wide and 21 or 20, instant), false
    for i = 1, count do
      local first, entries, start, current, total = firsts[i], counts[i], starts[i], currents[i], totals[i] + hits
      if total > MAX_SHORT and not is_wide or total > MAX_HITS then
        if bases[i] > 0 or not is_wide then
          return nil
        end
        total = MAX_HITS
      end
      local kept = entries - first + 1
      local is_merged = newests[i] == current
      if is_merged then
        kept = kept - 1
      else
        is_new = true
        newests[i] = current
      end
      new = new .. pack(is_wide and '>I2I7' or '>I2I4', kept + 1, befores[i])
        .. (kept > 0 and sub(value, start + (first - 1) * ENTRY, start + (first + kept - 1) * ENTRY - 1) or '')
        .. pack(FORM, current, total)
      used[i], totals[i] = used[i] + hits, total
    end
    return new, is_new or renews
  end

  -- Returns the value changed in a mode other than a charge: without the newest hits, without those
  -- of the bucket of a charge, nothing if no window has any; or only with another latest instant.
  local function changed(value, hits, writes, instant, count, buckets)
    if writes == TOUCH then
      return ledgers().touched(value or ledgers().unused(20, count), instant)
    elseif not value then
      return nil
    end
    local new, took = sub(value, 1, 1) .. pack('>I7', instant), false
    for i = 1, count do
      local start, entries = starts[i], counts[i]
      local ledger = sub(value, start - ENTRY + 5, start + entries * ENTRY - 1)
      if writes == REFUND then
        local part = min(hits, totals[i] - befores[i])
        if part > 0 then
          took = true
          ledger = shortened(value, start, 1, entries, bases[i], totals[i] - part)
        end
      else
        local index = floor(charged_at / widths[i])
        local entry, before = since(value, start, entries, bases[i], index)
        local position, total
        if entry <= entries then
          position, total = unpack_from(FORM, value, start + (entry - 1) * ENTRY)
        end
        if position == index and index + buckets >= currents[i] then
          took = true
          ledger = ledgers().without(value, start, entries, bases[i], entry, before, min(hits, total - before))
        end
      end
      new = new .. ledger
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
        before = unpack_from(is_wide and '>I7' or '>I4', value, start + (entry - 2) * ENTRY + 7)
      end
      -- It counts ceil(k * left / b) while `left` of it is in the period: at most `room` iff left
      -- <= room * b / k.
      leaves = leaves - multiply_divide(room - (total - up_to), width, up_to - before)
    end
    return leaves - instant
  end

  judges[2] = function(at, value, hits, writes)
    local begins, count, buckets, weighted = at
    count, buckets, weighted, at = unpack_from('>BI2B', text, at)
    local after, instant = at + 18 * count, now
    if value then
      local tag = #value >= 8 and byte(value)
      if tag ~= 20 and tag ~= 21 then
        return after
      end
      if (tag == 21) ~= is_wide then
        ledgers().set_wide(tag == 21)
      end
      instant = max(now, (unpack_from('>I7', value, 2)))
    elseif is_wide then
      ledgers().set_wide(false)
    end
    local fits = look(at, value, hits, instant, count, buckets, weighted)
    if fits == nil then
      return after
    end
    local allowed, new, is_renewed = fits
    if writes == BOTH or writes == (fits and 1 or 2) or writes == PAST then
      allowed = fits or writes == PAST
      new, is_renewed = charged(value, hits, instant, count, buckets)
      if not new then
        return judges[2](begins, ledgers().rebased(value, hits), hits, writes)
      end
    elseif writes >= REFUND then
      allowed = writes ~= DENIED_REPORT
      new, is_renewed = allowed and changed(value, hits, writes, instant, count, buckets), true
      if new then
        value = new
        look(at, value, hits, instant, count, buckets, weighted)
      end
    end
    local left, reset, retry, window, fewest
    local latest = instant
    for i = 1, count do
      local limit = limits[i]
      local room, ends, again = max(limit - used[i], 0), 0, ABSENT
      if totals[i] > befores[i] then
        local ends_at = (newests[i] + buckets + 1) * widths[i]
        ends, latest = ends_at - instant, max(latest, ends_at)
      end
      if not allowed and hits <= limit then
        again = used[i] + hits <= limit and 0 or fits_after(value, i, hits, instant, buckets, weighted, new)
      end
      if usages then
        usages[i] = pack('>I7I7I7I7', used[i], room, ends, again)
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
    return after, instant, allowed, new, is_renewed and latest, fewest, reset, retry, window - 1
  end
end
