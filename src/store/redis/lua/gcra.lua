-- gcra, and token_bucket in other words: limit hits per period, evenly, and burst at once. The same steps as
-- src/algorithm/gcra.rs.
--
-- A hit costs T = period / limit; in lowest terms p / l. A backlog is `whole` us and `part` l-ths of one, so that no product
-- and no quotient leaves what a double is exact for.
-- Parameters: limit (4), period us (7), l (4), p div l (7), p mod l (4), 65536 p div l (7, at most 2^53), 65536 p mod l (4), burst (4),
--   backlog of a burst (7, 4), deepest backlog (7, 4).
-- Value: tag, last us (7), whole (7), part (4), limit it was reckoned with (4). The short form, for what has no part and fits:
--   last div 16 (6), then 5 bytes of 4 bits last mod 16, 5 bits the length of limit, limit, and whole in what is left.
do
  -- Of the short form's last 5 bytes, what is below the 4 bits of `last`, and below the 5 of the length.
  local MAX_BACKLOG = 9007199254740992
  local SHORT, ROOM = 68719476736, 2147483648

  local function times(limit, hits)
    local high = math.floor(hits / 65536)
    local low = hits - high * 65536
    local parts = high * limit.rest_65536 + low * limit.rest
    local carried = math.floor(parts / limit.parts)
    return high * limit.whole_65536 + low * limit.whole + carried, parts - carried * limit.parts
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

  -- The difference; zero where the other is larger.
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

  local function divisor(a, b)
    while b > 0 do
      a, b = b, a % b
    end
    return a
  end

  -- A backlog reckoned with another amount per the same period, for the same hits, rounded up.
  local function rescaled(limit, whole, part, old)
    if whole / limit.limit * old >= MAX_BACKLOG then
      return MAX_BACKLOG, 0
    end
    local quotient, rest = multiply_divide(whole, old, limit.limit)
    rest = rest + part * divisor(old, limit.period)
    quotient = quotient + math.floor(rest / limit.limit)
    part = math.ceil((rest % limit.limit) / (limit.limit / limit.parts))
    if part == limit.parts then
      return quotient + 1, 0
    end
    return quotient, part
  end

  -- At `now`. It drains at the rate it was reckoned with, and is then rescaled.
  local function backlog(limit, state, now)
    local whole, part = drained(state.whole, state.part, now - state.last)
    if state.limit == limit.limit then
      return whole, part
    end
    whole, part = rescaled(limit, whole, part, state.limit)
    if not at_most(whole, part, limit.deepest, limit.deepest_part) then
      return limit.deepest, limit.deepest_part
    end
    return whole, part
  end

  local function set(limit, state, whole, part, now)
    state.last, state.whole, state.part, state.limit = now, whole, part, limit.limit
  end

  local function relieve(limit, state, whole, part, now)
    local before, before_part = backlog(limit, state, now)
    if before + before_part == 0 or whole + part == 0 then
      return false
    end
    whole, part = minus(limit, before, before_part, whole, part)
    set(limit, state, whole, part, now)
    return true
  end

  -- floor(backlog / T): a quotient of doubles is off by one at most.
  local function hits_in(limit, whole, part)
    local hits = math.floor((whole + part / limit.parts) / limit.period * limit.limit)
    while hits > 0 do
      local needs, needs_part = times(limit, hits)
      if at_most(needs, needs_part, whole, part) then
        break
      end
      hits = hits - 1
    end
    while true do
      local needs, needs_part = times(limit, hits + 1)
      if not at_most(needs, needs_part, whole, part) then
        return hits
      end
      hits = hits + 1
    end
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
      if state.part > 0 or state.whole >= unit or length > 31 then
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
      local whole, part = backlog(limit, state, now)
      whole, part = plus(limit, whole, part, times(limit, hits))
      return at_most(whole, part, limit.full, limit.full_part)
    end,

    charge = function(limit, state, hits, now)
      local before, before_part = backlog(limit, state, now)
      local whole, part = plus(limit, before, before_part, times(limit, hits))
      if not at_most(whole, part, limit.deepest, limit.deepest_part) then
        whole, part = limit.deepest, limit.deepest_part
      end
      -- A limit that was lowered may have left more than the deepest; a charge never gives any of it back.
      if at_most(whole, part, before, before_part) then
        whole, part = before, before_part
      end
      set(limit, state, whole, part, now)
    end,

    refund = function(limit, state, hits, now)
      local whole, part = times(limit, hits)
      return relieve(limit, state, whole, part, now)
    end,

    take_back = function(limit, state, hits, at, now)
      local whole, part = times(limit, hits)
      whole, part = drained(whole, part, math.max(now - at, 0))
      return relieve(limit, state, whole, part, now)
    end,

    report = function(limit, state, _, denied, now)
      local whole, part = backlog(limit, state, now)
      local free, free_part = minus(limit, limit.full, limit.full_part, whole, part)
      local retry
      if denied and denied <= limit.burst then
        local after, after_part = plus(limit, whole, part, times(limit, denied))
        after, after_part = minus(limit, after, after_part, limit.full, limit.full_part)
        retry = after + (after_part > 0 and 1 or 0)
      end
      return hits_in(limit, free, free_part), whole + (part > 0 and 1 or 0), retry
    end,

    -- Hits that have not drained; a part of one counts as one.
    counts = function(limit, state, _, now)
      local whole, part = backlog(limit, state, now)
      local hits = hits_in(limit, whole, part)
      local of_hits, of_hits_part = times(limit, hits)
      return hits + (at_most(whole, part, of_hits, of_hits_part) and 0 or 1)
    end,

    matters_until = function(_, state)
      return state.last + state.whole + (state.part > 0 and 1 or 0)
    end,
  }
end
