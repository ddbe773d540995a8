-- sliding_window: at most limit hits in any period, counted in buckets. The same steps as src/algorithm/sliding_window.rs.
--
-- Parameters: windows (1), buckets (2), weighted (1), then for each window: limit (4), period us (7), bucket width us (7).
-- Value: tag, last us (7), a ledger for each window; positions are bucket numbers.
do
  -- Returns the first bucket that counts, the hits from it on, and how many of them count.
  local function look(limit, state, i, now)
    local window, ring = limit.windows[i], state.rings[i]
    local current = math.floor(now / window.width)
    local first = ledger.since(ring, current - limit.buckets)
    local whole = ledger.total(ring) - ledger.total_before(ring, first)
    local counted = whole
    if limit.weighted and first <= ring.count then
      local index, total = ledger.entry(ring, first)
      if index + limit.buckets == current then
        local hits = total - ledger.total_before(ring, first)
        local share, rest = multiply_divide(hits, window.width - now % window.width, window.width)
        counted = whole - hits + share + (rest > 0 and 1 or 0)
      end
    end
    return first, whole, counted
  end

  local function leaves(limit, window, index)
    return (index + limit.buckets + 1) * window.width
  end

  -- Returns the instant at which no more than `room` hits count.
  local function fits_at(limit, window, ring, room)
    local total = ledger.total(ring)
    local last_to_leave = ledger.first(ring, function(_, up_to)
      return total - up_to <= room
    end)
    local index, up_to = ledger.entry(ring, last_to_leave)
    if not limit.weighted then
      return leaves(limit, window, index)
    end
    -- It counts ceil(k * left / b) while `left` of it is in the period: at most `room` iff left <= room * b / k.
    local hits = up_to - ledger.total_before(ring, last_to_leave)
    return leaves(limit, window, index) - multiply_divide(room - (total - up_to), window.width, hits)
  end

  algorithms[2] = {
    parameters = function(text, at)
      local limit, count, weighted = { windows = {} }
      count, limit.buckets, weighted, at = unpack_from('>BI2B', text, at)
      limit.weighted = weighted == 1
      for i = 1, count do
        local window = {}
        window.limit, window.period, window.width, at = unpack_from('>I4I7I7', text, at)
        limit.windows[i] = window
      end
      return limit, at
    end,

    unused = function(limit)
      local state = { last = 0, rings = {} }
      for i = 1, #limit.windows do
        state.rings[i] = ledger.new()
      end
      return state
    end,

    read = function(limit, text, wide)
      local state, at = { rings = {} }, 2
      state.last, at = unpack_from('>I7', text, at)
      for i = 1, #limit.windows do
        state.rings[i], at = ledger.read(text, at, wide)
      end
      return state, at
    end,

    write = function(_, state)
      local wide, parts = false, { pack('>I7', state.last) }
      for _, ring in ipairs(state.rings) do
        wide = wide or ledger.is_wide(ring)
      end
      for i, ring in ipairs(state.rings) do
        parts[i + 1] = ledger.write(ring, wide)
      end
      return table.concat(parts), wide
    end,

    copy = function(state)
      local copy = { last = state.last, rings = {} }
      for i, ring in ipairs(state.rings) do
        copy.rings[i] = ledger.copy(ring)
      end
      return copy
    end,

    allows = function(limit, state, hits, now)
      for i, window in ipairs(limit.windows) do
        local _, _, counted = look(limit, state, i, now)
        if counted + hits > window.limit then
          return false
        end
      end
      return true
    end,

    charge = function(limit, state, hits, now)
      for i, window in ipairs(limit.windows) do
        local first = look(limit, state, i, now)
        ledger.forget(state.rings[i], first)
        ledger.add(state.rings[i], math.floor(now / window.width), hits, true)
      end
      state.last = now
    end,

    refund = function(limit, state, hits, now)
      local took = false
      for i in ipairs(limit.windows) do
        local _, whole = look(limit, state, i, now)
        if math.min(hits, whole) > 0 then
          ledger.take_newest(state.rings[i], math.min(hits, whole))
          took = true
        end
      end
      state.last = took and now or state.last
      return took
    end,

    take_back = function(limit, state, hits, at, now)
      local took = false
      for i, window in ipairs(limit.windows) do
        local ring, index = state.rings[i], math.floor(at / window.width)
        local entry = ledger.since(ring, index)
        local is_live = index + limit.buckets >= math.floor(now / window.width)
        if is_live and entry <= ring.count and ledger.entry(ring, entry) == index then
          local _, total = ledger.entry(ring, entry)
          ledger.take_at(ring, entry, math.min(hits, total - ledger.total_before(ring, entry)))
          took = true
        end
      end
      state.last = took and now or state.last
      return took
    end,

    report = function(limit, state, i, denied, now)
      local window, ring = limit.windows[i], state.rings[i]
      local first, _, counted = look(limit, state, i, now)
      local reset, retry = 0, nil
      if first <= ring.count then
        reset = leaves(limit, window, (ledger.entry(ring, ring.count))) - now
      end
      if denied and denied <= window.limit then
        local room = window.limit - denied
        retry = counted <= room and 0 or fits_at(limit, window, ring, room) - now
      end
      return math.max(window.limit - counted, 0), reset, retry
    end,

    -- Returns the hits that count now in window i.
    counts = function(limit, state, i, now)
      local _, _, counted = look(limit, state, i, now)
      return counted
    end,

    matters_until = function(limit, state)
      local latest = state.last
      for i, window in ipairs(limit.windows) do
        local ring = state.rings[i]
        if ring.count > 0 then
          latest = math.max(latest, leaves(limit, window, (ledger.entry(ring, ring.count))))
        end
      end
      return latest
    end,
  }
end
