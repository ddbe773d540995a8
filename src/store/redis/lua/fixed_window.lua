-- fixed_window: limit hits per period, in windows counted from the epoch or by a calendar.
-- The same steps as src/algorithm/fixed_window.rs.
--
-- Parameters: windows (1), then of each: limit (4), period us (7), edges (1), and the edges of a calendar's windows around
--   the caller's now (7 each, ascending; none: multiples of the period).
-- Value: tag, last us (7), hits of each window (4 each, 7 where wide).
do
  local function edges_around(window, now)
    local edges = window.edges
    if not edges then
      local start = now - now % window.period
      return start, start + window.period
    end
    for i = 2, #edges do
      if now < edges[i] then
        return edges[i - 1], edges[i]
      end
    end
    -- Later than the caller could mean: the last window, as long as it usually is.
    return edges[#edges], math.max(now, edges[#edges] + window.period)
  end

  local function used(window, state, i, now)
    local start, stop = edges_around(window, now)
    if start <= state.last and state.last < stop then
      return state.used[i], stop
    end
    return 0, stop
  end

  -- Replaces every count by change(window, count); writes nothing, and says so, where nothing changes.
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
        local window, edges = {}
        window.limit, window.period, edges, at = unpack_from('>I4I7B', text, at)
        if edges > 0 then
          window.edges = {}
          for edge = 1, edges do
            window.edges[edge], at = unpack_from('>I7', text, at)
          end
        end
        windows[i] = window
      end
      return { windows = windows }, at
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

    refund = function(limit, state, hits, now)
      return rewrite(limit, state, now, function(_, count)
        return math.max(count - hits, 0)
      end)
    end,

    take_back = function(limit, state, hits, at, now)
      return rewrite(limit, state, now, function(window, count)
        local start, stop = edges_around(window, now)
        return start <= at and at < stop and math.max(count - hits, 0) or count
      end)
    end,

    -- Of window i: hits left, us until it is as if never used, us until `denied` hits fit (nil: never).
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

    -- Hits that count now in window i.
    counts = function(limit, state, i, now)
      return (used(limit.windows[i], state, i, now))
    end,

    matters_until = function(limit, state)
      local latest = 0
      for _, window in ipairs(limit.windows) do
        local _, stop = edges_around(window, state.last)
        latest = math.max(latest, stop)
      end
      return latest
    end,
  }
end
