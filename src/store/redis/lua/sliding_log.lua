-- sliding_log: exactly at most limit hits in any period, by storing each hit. The same steps as src/algorithm/sliding_log.rs.
--
-- Parameters: windows (1), then for each: limit (4), period us (7).
-- Value: tag, last us (7), a ledger; positions are instants in us.
do
  -- Charges beyond the limit can fill a log. Then the two oldest entries are merged, at the later instant.
  local MAX_ENTRIES = 20000

  local function used(state, period, now)
    local log = state.log
    return ledger.total(log) - ledger.total_before(log, ledger.since(log, now - period + 1))
  end

  local function forget(limit, state, now)
    ledger.forget(state.log, ledger.since(state.log, now - limit.longest + 1))
  end

  algorithms[3] = {
    parameters = function(text, at)
      local limit, count = { windows = {}, longest = 0 }
      count, at = unpack_from('>B', text, at)
      for i = 1, count do
        local window = {}
        window.limit, window.period, at = unpack_from('>I4I7', text, at)
        limit.windows[i], limit.longest = window, math.max(limit.longest, window.period)
      end
      return limit, at
    end,

    unused = function()
      return { last = 0, log = ledger.new() }
    end,

    read = function(_, text, wide)
      local state, at = {}, 2
      state.last, at = unpack_from('>I7', text, at)
      state.log, at = ledger.read(text, at, wide)
      return state, at
    end,

    write = function(_, state)
      local wide = ledger.is_wide(state.log)
      return pack('>I7', state.last) .. ledger.write(state.log, wide), wide
    end,

    copy = function(state)
      return { last = state.last, log = ledger.copy(state.log) }
    end,

    allows = function(limit, state, hits, now)
      for _, window in ipairs(limit.windows) do
        if used(state, window.period, now) + hits > window.limit then
          return false
        end
      end
      return true
    end,

    charge = function(limit, state, hits, now)
      forget(limit, state, now)
      if state.log.count >= MAX_ENTRIES then
        ledger.merge_oldest(state.log)
      end
      ledger.add(state.log, now, hits, false)
      state.last = now
    end,

    refund = function(limit, state, hits, now)
      local part = math.min(hits, used(state, limit.longest, now))
      if part == 0 then
        return false
      end
      forget(limit, state, now)
      ledger.take_newest(state.log, part)
      state.last = now
      return true
    end,

    -- Entries of one instant expire together, so it does not matter from which of them hits are removed.
    take_back = function(limit, state, hits, at, now)
      local log = state.log
      local first = ledger.since(log, at)
      local before, later = ledger.total_before(log, first), ledger.since(log, at + 1)
      local part = math.min(hits, ledger.total_before(log, later) - before)
      if part == 0 or at + limit.longest <= now then
        return false
      end
      ledger.take_at(log, first, part)
      forget(limit, state, now)
      state.last = now
      return true
    end,

    report = function(limit, state, i, denied, now)
      local window, log = limit.windows[i], state.log
      local hits = used(state, window.period, now)
      local reset, retry = 0, nil
      if hits > 0 then
        reset = ledger.entry(log, log.count) + window.period - now
      end
      if denied and denied <= window.limit then
        local room, total = window.limit - denied, ledger.total(log)
        retry = 0
        if hits > room then
          local last_to_leave = ledger.first(log, function(_, up_to)
            return total - up_to <= room
          end)
          retry = ledger.entry(log, last_to_leave) + window.period - now
        end
      end
      return math.max(window.limit - hits, 0), reset, retry
    end,

    -- Returns the hits that count now in window i.
    counts = function(limit, state, i, now)
      return used(state, limit.windows[i].period, now)
    end,

    matters_until = function(limit, state)
      if state.log.count == 0 then
        return state.last
      end
      return ledger.entry(state.log, state.log.count) + limit.longest
    end,
  }
end
