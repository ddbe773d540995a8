-- fixed_window: limit hits per period, in windows counted from the epoch or by a calendar.
-- The same steps as src/algorithm/fixed_window.rs.
--
-- Parameters: windows (1), then for each: limit (4), period us (7), spans (1), and for each span, a window of a calendar, its
--   start (7) and its end (7); without spans: multiples of the period. Instants in no span are not evaluated: the caller must
--   send the spans around them.
-- Value: tag, last us (7), hits of each window (4 each, 7 if wide).
do
  -- Returns the start and the end of the window that contains an instant; nothing if no known span contains it.
  local function bounds(window, at)
    local spans = window.spans
    if not spans then
      local start = at - at % window.period
      return start, start + window.period
    end
    for i = 1, #spans, 2 do
      if spans[i] <= at and at < spans[i + 1] then
        return spans[i], spans[i + 1]
      end
    end
  end

  local function used(window, state, i, now)
    local start, stop = bounds(window, now)
    if start <= state.last and state.last < stop then
      return state.used[i], stop
    end
    return 0, stop
  end

  -- Replaces every count by change(window, count). Returns false, and writes nothing, if nothing changes.
  local function rewrite(limit, state, now, change)
    local new, differs = {}, false
    for i, window in ipairs(limit.windows) do
      local old = used(window, state, i, now)
      new[i] = change(window, old)
      differs = differs or new[i] ~= old
    end
    if differs then
      state.used, state.last = new, now
    end
    return differs
  end

  algorithms[1] = {
    parameters = function(text, at)
      local windows, count = {}
      count, at = unpack_from('>B', text, at)
      for i = 1, count do
        local window, spans = {}
        window.limit, window.period, spans, at = unpack_from('>I4I7B', text, at)
        if spans > 0 then
          window.spans = {}
          for edge = 1, 2 * spans do
            window.spans[edge], at = unpack_from('>I7', text, at)
          end
        end
        windows[i] = window
      end
      return { windows = windows }, at
    end,

    -- Returns true if no known window contains an instant.
    is_beyond = function(limit, at)
      for _, window in ipairs(limit.windows) do
        if not bounds(window, at) then
          return true
        end
      end
      return false
    end,

    unused = function(limit)
      local zeros = {}
      for i = 1, #limit.windows do
        zeros[i] = 0
      end
      return { last = 0, used = zeros }
    end,

    read = function(limit, text, wide)
      local state, at, size = { used = {} }, 2, wide and '>I7' or '>I4'
      state.last, at = unpack_from('>I7', text, at)
      for i = 1, #limit.windows do
        state.used[i], at = unpack_from(size, text, at)
      end
      return state, at
    end,

    write = function(_, state)
      local wide, parts = false, { pack('>I7', state.last) }
      for _, hits in ipairs(state.used) do
        wide = wide or hits >= 4294967296
      end
      for i, hits in ipairs(state.used) do
        parts[i + 1] = pack(wide and '>I7' or '>I4', hits)
      end
      return table.concat(parts), wide
    end,

    copy = function(state)
      return { last = state.last, used = { unpack(state.used) } }
    end,

    allows = function(limit, state, hits, now)
      for i, window in ipairs(limit.windows) do
        if used(window, state, i, now) + hits > window.limit then
          return false
        end
      end
      return true
    end,

    charge = function(limit, state, hits, now)
      rewrite(limit, state, now, function(_, count)
        return math.min(count + hits, MAX_HITS)
      end)
    end,

    touch = function(limit, state, now)
      for i, window in ipairs(limit.windows) do
        state.used[i] = used(window, state, i, now)
      end
      state.last = now
    end,

    refund = function(limit, state, hits, now)
      return rewrite(limit, state, now, function(_, count)
        return math.max(count - hits, 0)
      end)
    end,

    take_back = function(limit, state, hits, at, now)
      return rewrite(limit, state, now, function(window, count)
        local start, stop = bounds(window, now)
        return start <= at and at < stop and math.max(count - hits, 0) or count
      end)
    end,

    -- Returns for window i: remaining hits, us until it resets, us until `denied` hits fit (nil: never).
    report = function(limit, state, i, denied, now)
      local window = limit.windows[i]
      local count, stop = used(window, state, i, now)
      local retry
      if denied and count + denied <= window.limit then
        retry = 0
      elseif denied and denied <= window.limit then
        retry = stop - now
      end
      return math.max(window.limit - count, 0), stop - now, retry
    end,

    -- Returns the hits that count now in window i.
    counts = function(limit, state, i, now)
      return (used(limit.windows[i], state, i, now))
    end,

    matters_until = function(limit, state)
      local latest = 0
      for _, window in ipairs(limit.windows) do
        -- A window without a known span ended long ago.
        local _, stop = bounds(window, state.last)
        latest = math.max(latest, stop or state.last)
      end
      return latest
    end,
  }
end
