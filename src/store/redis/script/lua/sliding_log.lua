-- sliding_log: exactly at most limit hits in any period, by storing each hit. The same steps as src/algorithm/sliding_log.rs.
--
-- Parameters: windows (1), then for each: limit (4), period us (7).
-- Value: tag, last us (7), a ledger; positions are instants in us. After a cost past the limit that
--   some windows count in their newest entry and others do not, a ledger for each window follows;
--   the first then admits no more than any of them, for a reader that knows only that one.
do
  -- Charges beyond the limit can fill a log. Then the two oldest entries are merged, at the later instant.
  local MAX_ENTRIES = 20000

  -- Returns the log of window i.
  local function log_of(state, i)
    return state.split and state.split[i] or state.log
  end

  local function used(log, period, now)
    return ledger.total(log) - ledger.total_before(log, ledger.since(log, now - period + 1))
  end

  local function forget_in(log, period, now)
    ledger.forget(log, ledger.since(log, now - period + 1))
  end

  local function forget(limit, state, now)
    forget_in(state.log, limit.longest, now)
    local left = 0
    for i, log in ipairs(state.split or {}) do
      forget_in(log, limit.windows[i].period, now)
      left = left + log.count
    end
    if state.split and left == 0 then
      state.split, state.log = nil, ledger.new()
    end
  end

  local function add_to_newest(log, hits, now)
    local total, before = ledger.total(log), ledger.total_before(log, log.count)
    ledger.pop(log)
    ledger.add(log, now, total - before + hits, false)
  end

  local function take_back_in(log, period, hits, at, now)
    local first = ledger.since(log, at)
    local before, later = ledger.total_before(log, first), ledger.since(log, at + 1)
    local part = math.min(hits, ledger.total_before(log, later) - before)
    if part == 0 or at + period <= now then
      return false
    end
    ledger.take_at(log, first, part)
    return true
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
      while at <= #text do
        state.split = state.split or {}
        state.split[#state.split + 1], at = ledger.read(text, at, wide)
      end
      return state, at
    end,

    write = function(_, state)
      local wide = ledger.is_wide(state.log)
      for _, log in ipairs(state.split or {}) do
        wide = wide or ledger.is_wide(log)
      end
      local text = pack('>I7', state.last) .. ledger.write(state.log, wide)
      for _, log in ipairs(state.split or {}) do
        text = text .. ledger.write(log, wide)
      end
      return text, wide
    end,

    copy = function(state)
      local copy = { last = state.last, log = ledger.copy(state.log) }
      for i, log in ipairs(state.split or {}) do
        copy.split = copy.split or {}
        copy.split[i] = ledger.copy(log)
      end
      return copy
    end,

    allows = function(limit, state, hits, now)
      for i, window in ipairs(limit.windows) do
        if used(log_of(state, i), window.period, now) + hits > window.limit then
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
      for _, log in ipairs(state.split or {}) do
        ledger.add(log, now, hits, false)
      end
      state.last = now
    end,

    -- Charges a cost that goes past the limit. If a window has as many entries as its limit, the
    -- hits are added to the newest entry, whose instant becomes `now`.
    charge_past = function(limit, state, hits, now)
      forget(limit, state, now)
      local full, any, all = {}, false, true
      for i, window in ipairs(limit.windows) do
        local log = log_of(state, i)
        local live = log.count - ledger.since(log, now - window.period + 1) + 1
        full[i] = log.count > 0 and live >= window.limit
        any, all = any or full[i], all and full[i]
      end
      if any and not all and not state.split then
        state.split = {}
        for i, window in ipairs(limit.windows) do
          state.split[i] = ledger.copy(state.log)
          forget_in(state.split[i], window.period, now)
        end
      end
      for i, log in ipairs(state.split or {}) do
        if full[i] then
          add_to_newest(log, hits, now)
        else
          ledger.add(log, now, hits, false)
        end
      end
      if any then
        add_to_newest(state.log, hits, now)
      else
        ledger.add(state.log, now, hits, false)
      end
      state.last = now
    end,

    touch = function(limit, state, now)
      forget(limit, state, now)
      state.last = now
    end,

    refund = function(limit, state, hits, now)
      local part, any = math.min(hits, used(state.log, limit.longest, now)), false
      local parts = {}
      for i, log in ipairs(state.split or {}) do
        parts[i] = math.min(hits, used(log, limit.windows[i].period, now))
        any = any or parts[i] > 0
      end
      if not any and (part == 0 or state.split) then
        return false
      end
      forget(limit, state, now)
      ledger.take_newest(state.log, part)
      for i, log in ipairs(state.split or {}) do
        ledger.take_newest(log, parts[i])
      end
      state.last = now
      return true
    end,

    -- Entries of one instant expire together, so it does not matter from which of them hits are removed.
    take_back = function(limit, state, hits, at, now)
      local took = take_back_in(state.log, limit.longest, hits, at, now)
      if state.split then
        took = false
        for i, log in ipairs(state.split) do
          took = take_back_in(log, limit.windows[i].period, hits, at, now) or took
        end
      end
      if took then
        forget(limit, state, now)
        state.last = now
      end
      return took
    end,

    report = function(limit, state, i, denied, now)
      local window, log = limit.windows[i], log_of(state, i)
      local hits = used(log, window.period, now)
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
      return used(log_of(state, i), limit.windows[i].period, now)
    end,

    matters_until = function(limit, state)
      if state.log.count == 0 then
        return state.last
      end
      return ledger.entry(state.log, state.log.count) + limit.longest
    end,
  }
end
