-- fixed_window: limit hits per period, in windows counted from the epoch or by a calendar. The same
-- steps as crates/core/src/algorithm/fixed_window.rs.
--
-- Parameters: windows (1), then for each: limit (4), period us (7), spans (1), and for each span, a
--   window of a calendar, its start (7) and its end (7); without spans: multiples of the period.
--   For one_fixed_window.lua only limit and period.
-- Value: 18, last us (7), hits of each window (4 each); or 19 and 7 bytes for each.
local function fixed_windows()
  local byte, min = string.byte, math.min
  -- For each window.
  local limits, periods, begins, stops, counts = {}, {}, {}, {}, {}

  -- Reads the windows from the text. Returns the position after them, and false if no known span
  -- contains the instant.
  local function read_windows(at, count, instant, is_one)
    local known = true
    for i = 1, count do
      local period, spans = nil, 0
      limits[i], period, at = unpack_from('>I4I7', text, at)
      if not is_one then
        spans, at = unpack_from('>B', text, at)
      end
      if spans == 0 then
        local start = instant - instant % period
        begins[i], stops[i] = start, start + period
      else
        local is_around = false
        for _ = 1, spans do
          local starts, ends
          starts, ends, at = unpack_from('>I7I7', text, at)
          if starts <= instant and instant < ends then
            begins[i], stops[i], is_around = starts, ends, true
          end
        end
        known = known and is_around
      end
      periods[i] = period
    end
    return at, known
  end

  -- Returns the hits to add to window i. No charge is later than the instant.
  local function added(i, hits, writes)
    if writes == REFUND or writes == TAKE_BACK and begins[i] <= charged_at then
      return -hits
    end
    return writes == TAKE_BACK and 0 or hits
  end

  -- Writes the hits to each window. Returns the value, nil if there are no hits to remove, and the
  -- time until which it matters.
  local function written(count, hits, writes, instant)
    local size, lives_until, differs = '>I4', 0, false
    for i = 1, count do
      local used = min(max(counts[i] + added(i, hits, writes), 0), MAX_HITS)
      differs = differs or used ~= counts[i]
      counts[i] = used
      size = used > MAX_SHORT and '>I7' or size
      lives_until = max(lives_until, stops[i])
    end
    if not differs and (writes == REFUND or writes == TAKE_BACK) then
      return nil
    end
    local new = pack('>BI7', size == '>I4' and 18 or 19, instant)
    for i = 1, count do
      new = new .. pack(size, counts[i])
    end
    return new, lives_until
  end

  return function(at, value, hits, writes, is_one)
    local count, known, is_read = 1, true, true
    if not is_one then
      count, at = unpack_from('>B', text, at)
    end
    local last, instant, size = -1, now
    if value then
      local tag = #value >= 8 and byte(value)
      size = tag == 19 and 7 or 4
      is_read = #value == 8 + size * count and (tag == 18 or tag == 19)
      if is_read then
        last = unpack_from('>I7', value, 2)
        instant = max(now, last)
      end
    end
    at, known = read_windows(at, count, instant, is_one)
    if not is_read then
      return at
    elseif not known then
      return at, nil, instant
    end
    local fits, is_first = true, false
    for i = 1, count do
      local used = 0
      if last < begins[i] or last >= stops[i] then
        is_first = true
      else
        used = unpack_from(size == 4 and '>I4' or '>I7', value, 9 + size * (i - 1))
      end
      counts[i] = used
      fits = fits and used + hits <= limits[i]
    end
    local allowed, new, lives_until = fits
    if writes == DENIED_REPORT then
      allowed, lives_until = false, last
      for i = 1, count do
        lives_until = last >= begins[i] and max(lives_until, stops[i]) or lives_until
      end
    elseif writes >= REFUND then
      allowed = true
      new, lives_until = written(count, hits, writes, instant)
    elseif writes == BOTH or writes == (fits and 1 or 2) then
      new, lives_until = written(count, hits, writes, instant)
    end
    local left, reset, retry, window, fewest
    for i = 1, count do
      local room, ends = max(limits[i] - counts[i], 0), stops[i] - instant
      local again = counts[i] + hits <= limits[i] and 0 or hits <= limits[i] and ends or ABSENT
      if usages then
        usages[i] = pack('>I7I7I7I7', counts[i], room, ends, again)
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
    if count == 1 then
      fewest = max(limits[1] - counts[1], -MOST_BEYOND)
    end
    return at, instant, allowed, new, (is_first or renews) and lives_until, fewest, reset, retry, window - 1
  end
end

-- Created on first use: calls about one window rarely need it.
judges[1] = function(at, value, hits, writes, is_one)
  judges[1] = fixed_windows()
  return judges[1](at, value, hits, writes, is_one)
end
