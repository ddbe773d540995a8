-- one_fixed_window: a limit of one fixed window that begins at multiples of its period, the most
-- frequent kind; what is rare is left to fixed_window.lua.
--
-- Parameters: limit (4), period us (7).
-- Value: as of fixed_window.lua.
judges[5] = function(at, value, hits, writes)
  if writes == DENIED_REPORT or value and #value ~= 12 then
    return judges[1](at, value, hits, writes, true)
  end
  local limit, period, after = unpack_from('>I4I7', text, at)
  local instant, tag, last, used = now
  if value then
    tag, last, used = unpack_from('>BI7I4', value)
    if tag ~= 18 then
      return after
    end
    if last > now then
      instant = last
    end
  end
  local stop = instant - instant % period + period
  local allowed, new, lives_until = true
  -- A value written in this window expires with it.
  local is_first = not value or last < stop - period
  if is_first then
    used = 0
  end
  local is_written
  if writes < REFUND then
    allowed = used + hits <= limit
    is_written = writes == BOTH or writes == (allowed and 1 or 2)
    used = is_written and used + hits or used
  elseif writes == REFUND or writes == TAKE_BACK and stop - period <= charged_at then
    -- No charge is later than the instant.
    is_written = used > 0 and hits > 0
    used = max(used - hits, 0)
  elseif writes > TAKE_BACK then
    is_written = true
    used = used + hits
  end
  if used > MAX_SHORT then
    return judges[1](at, value, hits, writes, true)
  elseif is_written then
    new = pack('>BI7I4', 18, instant, used)
    lives_until = (is_first or renews) and stop
  end
  return after, instant, allowed, new, lives_until, max(limit - used, -MOST_BEYOND), stop - instant,
    hits <= limit and stop - instant or ABSENT, 0
end
