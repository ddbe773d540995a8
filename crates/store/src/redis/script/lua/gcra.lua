-- gcra, also named token_bucket: limit hits per period, evenly, and burst at once. The same steps
-- as crates/core/src/algorithm/gcra.rs.
--
-- A hit costs T = period / limit; in lowest terms p / l. A backlog is `whole` us and `part` l-ths
-- of one, so that all products and quotients are exact in a double.
-- Parameters: limit (4), l (4), p (7), burst (4), then durations, whole us (7) and l-ths (4): cost
--   of a burst, maximum backlog; bits of the short form before the backlog (5), bound of a backlog
--   in the short form (4).
-- Value: 24, the short form, for values that have no part and fit, until 2112: last div 16 (6),
--   then 5 bytes: last mod 16 (4 bits), length of the limit (5 bits), limit, whole (remaining
--   bits); or 25, last us (7), whole (7), part (4), the limit that they are based on (4).
do
  local floor = math.floor
  -- Maximum integer that a double represents exactly, with all integers below it. Also a bound of
  -- all backlogs.
  local MAX_BACKLOG = 9007199254740992
  -- Bounds of the last 5 bytes of the short form: without the 4 bits of `last`, and without the 5
  -- bits of the length.
  local LAST_16TH, ROOM = 68719476736, 2147483648
  -- Instants from here on are too long for the short form.
  local SHORT_UNTIL = 4503599627370496

  -- ceil((whole + part / l) / (p / l)).
  local function hits_in(whole, part, l, p)
    local parts = whole * l + part
    local quotient, rest = 0, 0
    if parts < MAX_BACKLOG then
      rest = parts % p
      quotient = (parts - rest) / p
    else
      quotient, rest = multiply_divide(whole, l, p)
      parts = rest + part
      rest = parts % p
      quotient = quotient + (parts - rest) / p
    end
    return rest > 0 and quotient + 1 or quotient
  end

  -- Created on first use, since it is rare.
  rates = function()
    -- Returns the time that hits cost; the bound of all backlogs if it is longer than that.
    local function times(hits, l, p)
      local parts, part = hits * p
      if parts < MAX_BACKLOG then
        part = parts % l
        return (parts - part) / l, part
      elseif p / l * hits >= MAX_BACKLOG then
        return MAX_BACKLOG, 0
      end
      return multiply_divide(p, hits, l)
    end

    local function lower(one, one_part, other, other_part)
      return one < other or (one == other and one_part < other_part)
    end

    -- Returns the difference, or zero if the other is larger.
    local function minus(whole, part, other, other_part, l)
      if not lower(other, other_part, whole, part) then
        return 0, 0
      elseif part >= other_part then
        return whole - other, part - other_part
      end
      return whole - other - 1, part - other_part + l
    end

    -- Returns a backlog with the cost of hits, up to the maximum, which bounds the addition and not
    -- the existing backlog.
    local function plus(whole, part, cost, cost_part, l, deepest, deepest_part)
      if not lower(whole, part, deepest, deepest_part) then
        return whole, part
      end
      whole, part = whole + cost, part + cost_part
      if part >= l then
        whole, part = whole + 1, part - l
      end
      if lower(deepest, deepest_part, whole, part) then
        return deepest, deepest_part
      end
      return whole, part
    end

    -- Returns l and p of another amount per the same period.
    local function interval_of(amount, limit, l, p)
      local period = p * (limit / l)
      local a, b = amount, period
      while b > 0 do
        a, b = b, a % b
      end
      return amount / a, period / a
    end

    -- Converts a backlog of another amount per the same period, in `of`-ths, to one of `limit` in
    -- l-ths: the same hits, rounded up. Returns no value if the result exceeds the maximum.
    local function rescaled(whole, part, amount, of, limit, l)
      if amount == limit then
        return whole, part
      elseif whole / limit * amount >= 2 * MAX_BACKLOG then
        return nil
      end
      local quotient, rest = multiply_divide(whole, amount, limit)
      rest = rest + part * (amount / of)
      quotient = quotient + floor(rest / limit)
      part = math.ceil((rest % limit) / (limit / l))
      if part == l then
        quotient, part = quotient + 1, 0
      end
      if quotient < MAX_BACKLOG then
        return quotient, part
      end
    end

    -- Returns the latest instant of a value, the backlog at it and the limit that it is based on;
    -- no value if it cannot be read.
    local function read(value)
      if #value == 12 then
        local tag, high, low = unpack_from('>BI6I5', value)
        local last = high * 16 + floor(low / LAST_16TH)
        low = low % LAST_16TH
        local unit = ROOM / 2 ^ floor(low / ROOM)
        low = low % ROOM
        if tag == 24 and low >= unit then
          return last, low % unit, 0, floor(low / unit)
        end
      elseif #value == 23 then
        local tag, last, whole, part, amount = unpack_from('>BI7I7I4I4', value)
        if tag == 25 and amount > 0 then
          return last, whole, part, amount
        end
      end
    end

    local function written(instant, whole, part, amount)
      local _, length = math.frexp(amount)
      local unit = ROOM / 2 ^ length
      if part > 0 or whole >= unit or length > 31 or instant >= SHORT_UNTIL then
        return pack('>BI7I7I4I4', 25, instant, whole, part, amount)
      end
      local low = instant % 16
      return pack('>BI6I5', 24, (instant - low) / 16, low * LAST_16TH + length * ROOM + amount * unit + whole)
    end

    -- Subtracts the cost of hits, less what has drained of it since `elapsed`. The backlog is of an
    -- amount in of-ths at an interval of `per`, and the limit in l-ths at one of p. Uses the higher
    -- of the two rates, at which more has drained: when in doubt, less is subtracted. Returns the
    -- new backlog and its amount; no value if there are no hits to subtract.
    local function relieved(whole, part, amount, of, per, hits, elapsed, limit, l, p)
      local own, own_part = rescaled(whole, part, amount, of, limit, l)
      if own and amount <= limit then
        whole, part, amount, of, per = own, own_part, limit, l, p
      end
      local by, by_part = times(hits, of, per)
      if by < elapsed then
        by, by_part = 0, 0
      else
        by = by - elapsed
      end
      if whole + part == 0 or by + by_part == 0 then
        return nil
      end
      whole, part = minus(whole, part, by, by_part, of)
      own, own_part = rescaled(whole, part, amount, of, limit, l)
      if own then
        return own, own_part, limit
      end
      return whole, part, amount
    end

    -- Judges a backlog in a mode that is rare, or of another amount. Returns true if the hits are
    -- allowed, true if the counter is written, the backlog, and its amount.
    local function judge(whole, part, amount, instant, hits, writes, limit, l, p, burst, deepest, deepest_part)
      local of, per = l, p
      if amount ~= limit then
        of, per = interval_of(amount, limit, l, p)
      end
      if writes == TOUCH then
        return true, true, whole, part, amount
      elseif writes == REFUND or writes == TAKE_BACK then
        local elapsed = writes == TAKE_BACK and max(instant - charged_at, 0) or 0
        local new, new_part, of_amount = relieved(whole, part, amount, of, per, hits, elapsed, limit, l, p)
        return true, new ~= nil, new or whole, new_part or part, of_amount or amount
      end
      local allowed = writes == PAST
      if hits <= burst and not allowed then
        local room, room_part = times(burst - hits, of, per)
        allowed = not lower(room, room_part, whole, part)
      end
      if writes ~= PAST and writes ~= BOTH and writes ~= (allowed and 1 or 2) then
        return allowed and writes ~= DENIED_REPORT, false, whole, part, amount
      end
      local own, own_part = rescaled(whole, part, amount, of, limit, l)
      if not own then
        -- Nothing is added beyond the maximum that can be represented, which is also beyond the
        -- maximum backlog.
        return allowed, true, whole, part, amount
      end
      local cost, cost_part = times(hits, l, p)
      whole, part = plus(own, own_part, cost, cost_part, l, deepest, deepest_part)
      return allowed, true, whole, part, limit
    end

    local functions = {
      times = times, lower = lower, minus = minus, plus = plus, read = read, written = written,
      rescaled = rescaled, interval_of = interval_of, judge = judge,
    }
    rates = function()
      return functions
    end
    return functions
  end

  judges[4] = function(at, value, hits, writes)
    local limit, l, p, burst, full, full_part, deepest, deepest_part, head, bound
    limit, l, p, burst, full, full_part, deepest, deepest_part, head, bound, at =
      unpack_from('>I4I4I7I4I7I4I7I4I5I4', text, at)
    local whole, part, instant, amount = 0, 0, now, limit
    if value then
      local last
      if #value == 12 then
        local tag, high, low = unpack_from('>BI6I5', value)
        whole = low % LAST_16TH - head
        if tag == 24 and whole >= 0 and whole < bound then
          last = high * 16 + floor(low / LAST_16TH)
        end
      elseif #value == 23 then
        local tag
        tag, last, whole, part, amount = unpack_from('>BI7I7I4I4', value)
        if tag ~= 25 or amount == 0 then
          return at
        end
      end
      if not last then
        last, whole, part, amount = rates().read(value)
        if not last then
          return at
        end
      end
      if last > now then
        instant = last
      end
      whole = whole - (instant - last)
      if whole < 0 then
        whole, part = 0, 0
      end
    end
    local is_written, allowed = false, true
    local room, room_part
    if writes >= REFUND or amount ~= limit then
      allowed, is_written, whole, part, amount =
        rates().judge(whole, part, amount, instant, hits, writes, limit, l, p, burst, deepest, deepest_part)
    else
      local cost, cost_part = hits * p
      if cost < MAX_BACKLOG then
        cost_part = cost % l
        cost = (cost - cost_part) / l
      else
        cost, cost_part = rates().times(hits, l, p)
      end
      room, room_part = full - cost, full_part - cost_part
      if room_part < 0 then
        room, room_part = room - 1, room_part + l
      end
      allowed = hits <= burst and (whole < room or (whole == room and part <= room_part))
      is_written = writes == BOTH or writes == (allowed and 1 or 2)
      -- The maximum backlog bounds the addition, not the existing backlog.
      if is_written and (whole < deepest or (whole == deepest and part < deepest_part)) then
        whole, part = whole + cost, part + cost_part
        if part >= l then
          whole, part = whole + 1, part - l
        end
        if whole > deepest or (whole == deepest and part > deepest_part) then
          whole, part = deepest, deepest_part
        end
      end
    end
    local reset = part > 0 and whole + 1 or whole
    local new
    if is_written then
      if part == 0 and whole < bound and instant < SHORT_UNTIL and amount == limit then
        local low = instant % 16
        new = pack('>BI6I5', 24, (instant - low) / 16, low * LAST_16TH + head + whole)
      elseif amount == limit then
        new = pack('>BI7I7I4I4', 25, instant, whole, part, limit)
      else
        new = rates().written(instant, whole, part, amount)
      end
    end
    if amount ~= limit then
      l, p = rates().interval_of(amount, limit, l, p)
      room = nil
    end
    local left, retry = max(burst - hits_in(whole, part, l, p), 0)
    if not allowed then
      retry = ABSENT
      if hits <= burst then
        if not room then
          room, room_part = rates().times(burst - hits, l, p)
        end
        retry = max(whole - room + (part > room_part and 1 or 0), 0)
      end
    end
    if usages then
      usages[1] = pack('>I7I7I7I7', hits_in(whole, part, l, p), left, reset, retry or ABSENT)
    end
    return at, instant, allowed, new, instant + reset, left, reset, retry, 0
  end

end
