-- sliding_log: the same steps as ../sliding_log.lua.
--
-- Parameters: as in ../sliding_log.lua.
-- Value: 22, last us (7), a ledger; positions are instants in us.
do
  local MAX_ENTRIES, START = 20000, 15
  -- For each window: amount, period, the first entry that counts, the total before it.
  local limits, periods, firsts, befores = {}, {}, {}, {}

  -- Evaluates each window; the last one is the longest.
  local function look(at, value, instant, count, entries, base)
    local longest, oldest = 0, 1
    for i = 1, count do
      local limit, period = unpack_from('>I4I7', text, at)
      at = at + 11
      limits[i], periods[i] = limit, period
      firsts[i], befores[i] = since(value, START, 1, entries, base, instant - period + 1)
      if period > longest then
        longest, oldest = period, i
      end
    end
    return longest, firsts[oldest], befores[oldest]
  end

  judges[3] = function(at, value, hits, writes)
    local count
    count, at = unpack_from('>B', text, at)
    local after, instant, entries, base, total, newest = at + 11 * count, now, 0, 0, 0, 0
    if value then
      if #value < 14 or byte(value) ~= 22 then
        return after
      end
      local last
      last, entries, base = unpack_from('>I7I2I4', value, 2)
      if #value ~= 14 + entries * ENTRY then
        return after
      end
      instant, total = max(now, last), base
      if entries > 0 then
        newest, total = unpack_from('>I7I4', value, #value - ENTRY + 1)
      end
    end
    local longest, first, before = look(at, value, instant, count, entries, base)
    local fits = true
    for i = 1, count do
      fits = fits and total - befores[i] + hits <= limits[i]
    end
    local allowed, new = fits or writes == REFUND
    if writes == REFUND then
      local part = min(hits, total - before)
      if part > 0 then
        new = pack('>BI7', 22, instant) .. shortened(value, START, first, entries, before, total - part)
        value = new
        entries, base = unpack_from('>I2I4', value, 9)
        total, newest = base, instant - longest
        if entries > 0 then
          newest, total = unpack_from('>I7I4', value, #value - ENTRY + 1)
        end
        look(at, value, instant, count, entries, base)
      end
    elseif writes == BOTH or writes == (fits and 1 or 2) then
      local kept = entries - first + 1
      total = total + hits
      if total > MAX_SHORT or kept >= MAX_ENTRIES then
        return after
      end
      new = pack('>BI7I2I4', 22, instant, kept + 1, before)
        .. (kept > 0 and sub(value, START + (first - 1) * ENTRY) or '')
        .. pack('>I7I4', instant, total)
      newest = instant
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
          local _, position = reaching(value, START, firsts[i], entries, total - limit + hits)
          again = (position or newest) + periods[i] - instant
        end
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
