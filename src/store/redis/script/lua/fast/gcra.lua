-- gcra: the same steps as ../gcra.lua.
--
-- Parameters: limit (4), l (4), p (7), burst (4), then durations, whole us (7) and l-ths (4): cost
--   of the hits, maximum backlog that admits them, maximum backlog; bits of the short form before
--   the backlog (5), bound of a backlog in the short form (4).
-- Value: 24, the short form; or 25, last us (7), whole (7), part (4), the limit that they are based
--   on (4).
do
  local floor = math.floor
  -- Maximum integer that a double represents exactly, with all integers below it.
  local MAX_BACKLOG = 9007199254740992
  -- Bound of the last 5 bytes of the short form without the 4 bits of `last`.
  local LAST_16TH = 68719476736
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

  judges[4] = function(at, value, hits, writes)
    local limit, l, p, burst, cost, cost_part, room, room_part, deepest, deepest_part, head, bound
    limit, l, p, burst, cost, cost_part, room, room_part, deepest, deepest_part, head, bound, at =
      unpack_from('>I4I4I7I4I7I4I7I4I7I4I5I4', text, at)
    local whole, part, instant = 0, 0, now
    if value then
      local length, last, is_read = #value
      if length == 12 then
        local tag, high, low = unpack_from('>BI6I5', value)
        whole = low % LAST_16TH - head
        last = high * 16 + floor(low / LAST_16TH)
        is_read = tag == 24 and whole >= 0 and whole < bound
      elseif length == 23 then
        local tag, amount
        tag, last, whole, part, amount = unpack_from('>BI7I7I4I4', value)
        is_read = tag == 25 and amount == limit
      end
      if not is_read then
        return at
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
    if writes == REFUND then
      is_written = whole + part > 0 and cost + cost_part > 0
      if is_written then
        whole, part = whole - cost, part - cost_part
        if part < 0 then
          whole, part = whole - 1, part + l
        end
        if whole < 0 then
          whole, part = 0, 0
        end
      end
    else
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
      if part == 0 and whole < bound and instant < SHORT_UNTIL then
        local low = instant % 16
        new = pack('>BI6I5', 24, (instant - low) / 16, low * LAST_16TH + head + whole)
      else
        new = pack('>BI7I7I4I4', 25, instant, whole, part, limit)
      end
    end
    local retry
    if not allowed then
      retry = ABSENT
      if hits <= burst then
        retry = max(whole - room + (part > room_part and 1 or 0), 0)
      end
    end
    return at, instant, allowed, new, instant + reset, max(burst - hits_in(whole, part, l, p), 0), reset, retry, 0
  end
end
