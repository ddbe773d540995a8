-- sliding_log: exactly at most limit hits in any period, by storing each hit. The same steps as
-- crates/core/src/algorithm/sliding_log.rs.
--
-- Parameters: windows (1), then for each: limit (4), period us (7).
-- Value: 22, 23 if wide, last us (7), a ledger; positions are instants in us. After a cost past the
--   limit that some windows count in their newest entry and others do not, a ledger for each window
--   follows; the first then admits no more than any of them, for a reader that knows only that one.
do
  -- Charges beyond the limit can fill a log. Then the two oldest entries are merged, at the later
  -- instant.
  local MAX_ENTRIES = 20000
  -- For each window: amount, period, the first entry that counts, the total before it.
  local limits, periods, firsts, befores = {}, {}, {}, {}
  -- Of the log: offset of the first entry, the number of entries, the total before the first one
  -- and of all, and the newest position.
  local start, entries, base, total, newest

  -- Evaluates each window. Returns the longest period, the first entry that counts in it and the
  -- total before that.
  local function look(at, value, instant, count)
    local longest, first, before = 0, nil, nil
    for i = 1, count do
      local limit, period = unpack_from('>I4I7', text, at)
      at = at + 11
      limits[i], periods[i] = limit, period
      firsts[i], befores[i] = since(value, start, entries, base, instant - period + 1)
      if period > longest then
        longest, first, before = period, firsts[i], befores[i]
      end
    end
    -- An empty log matters until its instant.
    if entries == 0 then
      newest = instant - longest
    end
    return longest, first, before
  end

  -- Created on first use, since it is rare.
  local logs
  logs = function()
    -- Reads the log of a value of 14 bytes at least. Returns the offset of what follows it.
    local function read(value)
      start = ENTRY + 4
      entries, base = unpack_from(is_wide and '>I2I7' or '>I2I4', value, 9)
      local stop = start + entries * ENTRY
      total = base
      if entries > 0 and stop <= #value + 1 then
        newest, total = unpack_from(FORM, value, stop - ENTRY)
      end
      return stop
    end

    -- Returns the value changed in a mode other than a charge: without the newest hits, or without
    -- those of a charge, no value if none is left; or only with another latest instant. Entries of
    -- one instant expire together, so it does not matter from which of them hits are removed.
    local function changed(value, hits, writes, instant, longest, first, before)
      if writes == TOUCH then
        return ledgers().touched(value or ledgers().unused(22, 1), instant)
      elseif not value then
        return nil
      elseif writes == REFUND then
        local part = min(hits, total - before)
        return part > 0 and sub(value, 1, 1) .. pack('>I7', instant)
          .. shortened(value, start, first, entries, before, total - part)
      end
      local entry, reached = since(value, start, entries, base, charged_at)
      local _, up_to = since(value, start, entries, base, charged_at + 1)
      local part = min(hits, up_to - reached)
      if part == 0 or charged_at + longest <= instant then
        return nil
      end
      local new = sub(value, 1, 1) .. pack('>I7', instant)
        .. ledgers().without(value, start, entries, base, entry, reached, part)
      -- Entries that no longer count are dropped.
      read(new)
      first, before = since(new, start, entries, base, instant - longest + 1)
      return sub(new, 1, 8) .. pack(is_wide and '>I2I7' or '>I2I4', entries - first + 1, before) .. sub(new, start + (first - 1) * ENTRY)
    end

    -- Returns the part of a value that all windows share, and the logs of each; no value if it
    -- cannot be read.
    local function parts_of(value, count)
      local stop, logs = read(value), {}
      local shared = sub(value, 1, stop - 1)
      while stop + ENTRY - 6 <= #value do
        local place = stop
        stop = place + ENTRY - 5 + unpack_from('>I2', value, place) * ENTRY
        logs[#logs + 1] = sub(value, 1, 8) .. sub(value, place, stop - 1)
      end
      if stop == #value + 1 and (#logs == 0 or #logs == count) then
        return shared, logs
      end
    end

    -- Returns for each window true if its log has as many entries that count as its limit; then
    -- true if that is so for any, and for all.
    local function full_of(at, count, shared, logs)
      local full, any, all = {}, false, true
      for i = 1, count do
        local limit, period = unpack_from('>I4I7', text, at + 11 * (i - 1))
        local log = logs[i] or shared
        read(log)
        local instant = max(now, (unpack_from('>I7', log, 2)))
        local first = since(log, start, entries, base, instant - period + 1)
        full[i] = entries - first + 1 >= limit
        any, all = any or full[i], all and full[i]
      end
      return full, any, all
    end

    -- Returns a value with a log that all windows share, and one for each.
    local function joined(shared, logs, instant)
      local wide, is_empty, all = false, true, { shared, unpack(logs) }
      for i, log in ipairs(all) do
        wide = wide or byte(log) == 23
        is_empty = is_empty and (i == 1 or unpack_from('>I2', log, 9) == 0)
      end
      if is_empty then
        return ledgers().touched(ledgers().unused(22, 1), instant)
      end
      for i, log in ipairs(all) do
        if wide and byte(log) == 22 then
          ledgers().set_wide(false)
          log = ledgers().rebased(log, MAX_HITS)
        end
        all[i] = sub(log, 9)
      end
      return pack('>BI7', wide and 23 or 22, instant) .. table.concat(all)
    end

    -- Returns the reply by the logs after the request: as of judge, from the remaining hits on.
    local function report(at, count, logs, hits, allowed)
      local left, reset, retry, window, fewest, longest
      local collected = usages
      for i = 1, count do
        usages = collected and {}
        local place = at + 11 * (i - 1)
        local _, period = unpack_from('>I4I7', text, place)
        local _, _, _, _, _, room, ends, again =
          judges[3](place, logs[i], allowed and 0 or hits, allowed and REFUND or DENIED_REPORT, 1)
        if collected then
          collected[i] = usages[1]
        end
        local rank, best = -room, -(left or room)
        if not allowed then
          rank, best = again, retry or again
        end
        fewest = min(fewest or room, room)
        if i == 1 or rank > best or (rank == best and period > longest) then
          left, reset, retry, window, longest = room, ends, again, i, period
        end
      end
      usages = collected
      return fewest, reset, retry, window - 1
    end

    -- Judges windows of which each has a log of its own, or gets one by a cost past the limit.
    -- Returns as a judge does, but the position.
    local function judge_split(at, count, value, hits, writes)
      local shared, logs = parts_of(value, count)
      if not shared then
        return nil
      end
      local full, any, all = {}, false, true
      if writes == PAST then
        full, any, all = full_of(at, count, shared, logs)
      end
      if #logs == 0 and any == all then
        return select(2, judges[3](at, shared, hits, writes, count, any))
      end
      local fits, took, own = true, false, {}
      for i = 1, count do
        local _, _, allowed = judges[3](at + 11 * (i - 1), logs[i] or shared, hits, 0, 1)
        fits = fits and allowed
      end
      local allowed = writes ~= DENIED_REPORT and (fits or writes >= REFUND)
      local mode = 0
      if writes == BOTH or writes == (fits and 1 or 2) then
        mode = BOTH
      elseif writes >= REFUND then
        mode = writes
      end
      for i = 1, count do
        own[i] = logs[i] or shared
        local _, _, _, log = judges[3](at + 11 * (i - 1), own[i], hits, mode, 1, full[i])
        if log then
          own[i], took = log, true
        end
      end
      local _, instant, _, with_all, lives_until = judges[3](at, shared, hits, took and mode or 0, count, any)
      local new = took and joined(with_all or shared, own, instant)
      return instant, allowed, new, lives_until, report(at, count, own, hits, allowed)
    end

    local functions = { read = read, changed = changed, judge = judge_split }
    logs = function()
      return functions
    end
    return functions
  end

  -- With a number of windows, their parameters begin at `at`, and the value has one log for all of
  -- them; with `merges`, hits are added to its newest entry, which moves to the instant.
  judges[3] = function(at, value, hits, writes, windows, merges)
    local begins, count, instant = at, windows, now
    if not windows then
      count, at = unpack_from('>B', text, at)
    end
    local after = at + 11 * count
    entries, base, total = 0, 0, 0
    if value then
      local tag = #value >= 14 and byte(value)
      if tag ~= 22 and (tag ~= 23 or #value < 17) then
        return after
      end
      if (tag == 23) ~= is_wide then
        ledgers().set_wide(tag == 23)
      end
      local last
      last, entries, base = unpack_from(is_wide and '>I7I2I7' or '>I7I2I4', value, 2)
      if #value ~= ENTRY + 3 + entries * ENTRY or writes == PAST and not windows then
        return after, logs().judge(at, count, value, hits, writes)
      end
      start, total = ENTRY + 4, base
      if last > instant then
        instant = last
      end
      if entries > 0 then
        newest, total = unpack_from(FORM, value, #value - ENTRY + 1)
      end
    elseif is_wide then
      ledgers().set_wide(false)
    end
    local longest, first, before = look(at, value, instant, count)
    local fits = true
    for i = 1, count do
      fits = fits and total - befores[i] + hits <= limits[i]
    end
    local allowed, new = fits
    if writes == BOTH or writes == (fits and 1 or 2) or writes == PAST then
      allowed = fits or writes == PAST
      local last, sum = merges and entries - 1 or entries, total + hits
      local kept = last - first + 1
      if sum > MAX_SHORT and not is_wide or sum > MAX_HITS then
        if base > 0 or not is_wide then
          return judges[3](begins, ledgers().rebased(value, hits), hits, writes, windows, merges)
        end
        sum = MAX_HITS
      end
      if kept >= MAX_ENTRIES then
        first, kept = first + 1, kept - 1
      end
      total, newest = sum, instant
      new = pack(is_wide and '>BI7I2I7' or '>BI7I2I4', is_wide and 23 or 22, instant, kept + 1, before)
        .. (kept > 0 and sub(value, start + (first - 1) * ENTRY, start + last * ENTRY - 1) or '')
        .. pack(FORM, instant, sum)
    elseif writes >= REFUND then
      allowed = writes ~= DENIED_REPORT
      new = allowed and logs().changed(value, hits, writes, instant, longest, first, before)
      if new then
        value = new
        logs().read(value)
        look(at, value, instant, count)
      end
    end
    local left, reset, retry, window, fewest
    for i = 1, count do
      local limit, used = limits[i], total - befores[i]
      local room, ends, again = max(limit - used, 0), 0, ABSENT
      if used > 0 then
        ends = newest + periods[i] - instant
      end
      if not allowed and hits <= limit then
        again = 0
        if used + hits > limit then
          local _, position = reaching(value, start, firsts[i], entries, total - limit + hits)
          again = (position or newest) + periods[i] - instant
        end
      end
      if usages then
        usages[i] = pack('>I7I7I7I7', used, room, ends, again)
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
    return after, instant, allowed, new, newest + longest, fewest, reset, retry, window - 1
  end
end
