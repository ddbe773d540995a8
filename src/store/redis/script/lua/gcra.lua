-- gcra, also named token_bucket: limit hits per period, evenly, and burst at once. The same steps as
-- src/algorithm/gcra.rs.
--
-- A hit costs T = period / limit; in lowest terms p / l. A backlog is `whole` us and `part` l-ths of one, so that all products
-- and quotients are exact in a double.
-- Parameters: limit (4), period us (7), l (4), p div l (7), p mod l (4), 65536 p div l (7, at most 2^53), 65536 p mod l (4), burst (4),
--   backlog of a burst (7, 4), maximum backlog (7, 4).
-- Value: tag, last us (7), whole (7), part (4), the limit that they are based on (4). The short form, for values that have no part and
--   fit, until 2112: last div 16 (6), then 5 bytes: last mod 16 (4 bits), length of limit (5 bits), limit, whole (remaining bits).
do
  -- Bounds of the last 5 bytes of the short form: without the 4 bits of `last`, and without the 5 bits of the length.
  local MAX_BACKLOG = 9007199254740992
  local SHORT, ROOM = 68719476736, 2147483648
  -- 16 * 2^48: instants from here on are too long for the short form.
  local SHORT_UNTIL = 4503599627370496

  local function divisor(a, b)
    while b > 0 do
      a, b = b, a % b
    end
    return a
  end

  -- Returns the terms of a backlog that was written under this amount; the limit itself if the amount is its own.
  local function interval_with(limit, amount)
    if amount == limit.limit then
      return limit
    end
    return { limit = amount, period = limit.period, parts = amount / divisor(amount, limit.period) }
  end

  -- Returns the time that hits cost, bounded by the maximum backlog if the amount is not the limit's own.
  local function times(interval, hits)
    if not interval.whole then
      if interval.period / interval.limit * hits >= MAX_BACKLOG then
        return MAX_BACKLOG, 0
      end
      local whole, rest = multiply_divide(interval.period, hits, interval.limit)
      return whole, rest * interval.parts / interval.limit
    end
    local high = math.floor(hits / 65536)
    local low = hits - high * 65536
    local parts = high * interval.rest_65536 + low * interval.rest
    local carried = math.floor(parts / interval.parts)
    return high * interval.whole_65536 + low * interval.whole + carried, parts - carried * interval.parts
  end

  local function plus(limit, whole, part, other_whole, other_part)
    whole, part = whole + other_whole, part + other_part
    if part >= limit.parts then
      return whole + 1, part - limit.parts
    end
    return whole, part
  end

  local function at_most(whole, part, other_whole, other_part)
    return whole < other_whole or (whole == other_whole and part <= other_part)
  end

  -- Returns the difference, or zero if the other is larger.
  local function minus(limit, whole, part, other_whole, other_part)
    if at_most(whole, part, other_whole, other_part) then
      return 0, 0
    end
    if part >= other_part then
      return whole - other_whole, part - other_part
    end
    return whole - other_whole - 1, part - other_part + limit.parts
  end

  local function drained(whole, part, elapsed)
    if whole < elapsed then
      return 0, 0
    end
    return whole - elapsed, part
  end

  -- Returns the backlog at `now`, in parts of the interval of state.limit, at whose rate it drains.
  local function backlog(state, now)
    return drained(state.whole, state.part, now - state.last)
  end

  -- Converts a backlog of another amount per the same period to the limit's own parts: the same hits, rounded up. Returns nothing
  -- if the result exceeds the maximum.
  local function rescaled(limit, whole, part, amount)
    if amount == limit.limit then
      return whole, part
    end
    if whole / limit.limit * amount >= 2 * MAX_BACKLOG then
      return nil
    end
    local quotient, rest = multiply_divide(whole, amount, limit.limit)
    rest = rest + part * divisor(amount, limit.period)
    quotient = quotient + math.floor(rest / limit.limit)
    part = math.ceil((rest % limit.limit) / (limit.limit / limit.parts))
    if part == limit.parts then
      quotient, part = quotient + 1, 0
    end
    if quotient < MAX_BACKLOG then
      return quotient, part
    end
  end

  local function set(state, whole, part, amount, now)
    state.last, state.whole, state.part, state.limit = now, whole, part, amount
  end

  -- Subtracts the cost of hits, less what has drained of it in `elapsed`. Uses the higher of the two rates, at which more has
  -- drained: when in doubt, less is subtracted. Returns true if there was anything to subtract.
  local function relieve(limit, state, hits, elapsed, now)
    local before, before_part = backlog(state, now)
    local interval, own, own_part = interval_with(limit, state.limit), rescaled(limit, before, before_part, state.limit)
    if own and state.limit <= limit.limit then
      before, before_part, interval = own, own_part, limit
    end
    local whole, part = times(interval, hits)
    whole, part = drained(whole, part, elapsed)
    if before + before_part == 0 or whole + part == 0 then
      return false
    end
    whole, part = minus(interval, before, before_part, whole, part)
    own, own_part = rescaled(limit, whole, part, interval.limit)
    if own then
      set(state, own, own_part, limit.limit, now)
    else
      set(state, whole, part, interval.limit, now)
    end
    return true
  end

  -- ceil(backlog / T): a quotient of doubles is off by one at most.
  local function hits_in(interval, whole, part)
    local hits = math.floor((whole + part / interval.parts) / interval.period * interval.limit)
    while hits > 0 do
      local needs, needs_part = times(interval, hits - 1)
      if not at_most(whole, part, needs, needs_part) then
        break
      end
      hits = hits - 1
    end
    while not at_most(whole, part, times(interval, hits)) do
      hits = hits + 1
    end
    return hits
  end

  algorithms[4] = {
    parameters = function(text, at)
      local limit = {}
      limit.limit, limit.period, limit.parts, limit.whole, limit.rest, limit.whole_65536, limit.rest_65536, limit.burst,
        limit.full, limit.full_part, limit.deepest, limit.deepest_part, at =
        unpack_from('>I4I7I4I7I4I7I4I4I7I4I7I4', text, at)
      limit.windows = { limit }
      return limit, at
    end,

    unused = function(limit)
      return { last = 0, whole = 0, part = 0, limit = limit.limit }
    end,

    read = function(_, text, wide)
      local state = {}
      if wide then
        state.last, state.whole, state.part, state.limit = unpack_from('>I7I7I4I4', text, 2)
        return state
      end
      local high, low = unpack_from('>I6I5', text, 2)
      state.last = high * 16 + math.floor(low / SHORT)
      low = low % SHORT
      local length = math.floor(low / ROOM)
      low = low % ROOM
      local unit = ROOM / 2 ^ length
      state.limit, state.whole, state.part = math.floor(low / unit), low % unit, 0
      return state
    end,

    write = function(_, state)
      local _, length = math.frexp(state.limit)
      local unit = ROOM / 2 ^ length
      if state.part > 0 or state.whole >= unit or length > 31 or state.last >= SHORT_UNTIL then
        return pack('>I7I7I4I4', state.last, state.whole, state.part, state.limit), true
      end
      local low = state.last % 16 * SHORT + length * ROOM + state.limit * unit + state.whole
      return pack('>I6I5', math.floor(state.last / 16), low), false
    end,

    copy = function(state)
      return { last = state.last, whole = state.whole, part = state.part, limit = state.limit }
    end,

    allows = function(limit, state, hits, now)
      if hits > limit.burst then
        return false
      end
      local whole, part = backlog(state, now)
      return at_most(whole, part, times(interval_with(limit, state.limit), limit.burst - hits))
    end,

    charge = function(limit, state, hits, now)
      local before, before_part = backlog(state, now)
      local own, own_part = rescaled(limit, before, before_part, state.limit)
      if not own then
        -- Nothing is added beyond the maximum that can be represented, which is also beyond the maximum backlog.
        set(state, before, before_part, state.limit, now)
        return
      end
      local whole, part = plus(limit, own, own_part, times(limit, hits))
      if not at_most(whole, part, limit.deepest, limit.deepest_part) then
        whole, part = limit.deepest, limit.deepest_part
      end
      -- The maximum backlog bounds the addition, not the existing backlog.
      if at_most(whole, part, own, own_part) then
        whole, part = own, own_part
      end
      set(state, whole, part, limit.limit, now)
    end,

    refund = function(limit, state, hits, now)
      return relieve(limit, state, hits, 0, now)
    end,

    take_back = function(limit, state, hits, at, now)
      return relieve(limit, state, hits, math.max(now - at, 0), now)
    end,

    report = function(limit, state, _, denied, now)
      local whole, part = backlog(state, now)
      local interval, retry, left = interval_with(limit, state.limit), nil, 0
      if denied and denied <= limit.burst then
        -- At the rate at which the backlog drains: until the next write, that of the last write.
        local after, after_part = minus(interval, whole, part, times(interval, limit.burst - denied))
        retry = after + (after_part > 0 and 1 or 0)
      end
      if at_most(whole, part, times(interval, limit.burst)) then
        left = limit.burst - hits_in(interval, whole, part)
      end
      return left, whole + (part > 0 and 1 or 0), retry
    end,

    -- Returns the hits that have not drained; a part of one counts as one.
    counts = function(limit, state, _, now)
      return hits_in(interval_with(limit, state.limit), backlog(state, now))
    end,

    -- For holds: the backlog drained to `now` and converted to the limit's rate, and its parts.
    settle = function(limit, state, now)
      local whole, part = backlog(state, now)
      local own, own_part = rescaled(limit, whole, part, state.limit)
      if own then
        set(state, own, own_part, limit.limit, now)
      else
        set(state, whole, part, state.limit, now)
      end
    end,

    touch = function(_, state, now)
      local whole, part = backlog(state, now)
      set(state, whole, part, state.limit, now)
    end,

    backlog = backlog,
    rescaled = rescaled,
    interval_with = interval_with,
    times = times,
    minus = minus,

    matters_until = function(_, state)
      return state.last + state.whole + (state.part > 0 and 1 or 0)
    end,
  }
end
