-- fixed_window: the same steps as ../fixed_window.lua.
--
-- Parameters: as in ../fixed_window.lua.
-- Value: 18, last us (7), hits of each window (4 each).
do
  local byte, min = string.byte, math.min
  -- For each window.
  local limits, periods, stops, counts = {}, {}, {}, {}

  -- Reads the windows from the text. Returns the position after them, and false if no known span
  -- contains the instant.
  local function read_windows(at, count, instant)
    local known = true
    for i = 1, count do
      local period, spans, stop
      limits[i], period, spans, at = unpack_from('>I4I7B', text, at)
      if spans == 0 then
        stop = instant - instant % period + period
        stops[i], counts[i] = stop, stop - period
      else
        local is_around = false
        for _ = 1, spans do
          local starts, ends
          starts, ends, at = unpack_from('>I7I7', text, at)
          if starts <= instant and instant < ends then
            stops[i], counts[i], is_around = ends, starts, true
          end
        end
        known = known and is_around
      end
      periods[i] = period
    end
    return at, known
  end

  judges[1] = function(at, value, hits, writes)
    local count, known
    count, at = unpack_from('>B', text, at)
    local last, instant = -1, now
    local is_read = not value or #value == 8 + 4 * count and byte(value) == 18
    if value and is_read then
      last = unpack_from('>I7', value, 2)
      instant = max(now, last)
    end
    at, known = read_windows(at, count, instant)
    if not (is_read and known) then
      return at
    end
    local fits, is_first, any = true, false, false
    for i = 1, count do
      local used = 0
      if last < counts[i] then
        is_first = true
      else
        used = unpack_from('>I4', value, 5 + 4 * i)
      end
      counts[i] = used
      any = any or used > 0
      fits = fits and used + hits <= limits[i]
    end
    local allowed, new, lives_until = fits or writes == REFUND
    if writes == BOTH or writes == (fits and 1 or 2) or (writes == REFUND and any and hits > 0) then
      local added = writes == REFUND and -hits or hits
      new = pack('>BI7', 18, instant)
      lives_until = 0
      for i = 1, count do
        local used = max(counts[i] + added, 0)
        if used > MAX_SHORT then
          return at
        end
        counts[i] = used
        new = new .. pack('>I4', used)
        lives_until = max(lives_until, stops[i])
      end
      lives_until = (is_first or renews) and lives_until
    end
    local left, reset, retry, window, fewest
    for i = 1, count do
      local room, ends = max(limits[i] - counts[i], 0), stops[i] - instant
      local again = counts[i] + hits <= limits[i] and 0 or hits <= limits[i] and ends or ABSENT
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
    if count == 1 then
      fewest = limits[1] - counts[1]
    end
    return at, instant, allowed, new, lives_until, fewest, reset, retry, window - 1
  end
end
