-- beside: values with data next to an algorithm's state: tallies of callers, an operator's grant, a
-- reset. The same steps as crates/core/src/algorithm/tallies.rs and amend.rs.
--
-- Values  tag: that of the state, plus 32 if tallies follow, 64 if a grant or a reset follows; the
--   tallies with a length prefix (4), for each: entry with a length prefix (2), charged hits (7),
--   denied hits (7); remaining hits of a grant (7), the instant at which they expire (7), the
--   instant of the grant (7), the instant of a reset (7), and the instant from which no charge
--   before the reset would count (7); the state without its tag.
local TALLIED, EXTENDED = 32, 64

-- Created on first use, since it is rare.
beside = function()
  local byte, sub, min = string.byte, string.sub, math.min
  local PLACES = 40

  -- Splits a value into the state's value, the tallies, and the five numbers. Returns no value if
  -- it is cut short, or the error of a key of another type.
  local function split(value)
    if #value == 0 then
      return nil
    end
    local tag, at, tallies, left, gone_at, granted_at, reset_at, reset_until = byte(value), 2, '', 0, 0, 0, 0, 0
    local is_extended = tag >= EXTENDED
    tag = is_extended and tag - EXTENDED or tag
    if tag >= TALLIED then
      tag = tag - TALLIED
      if #value < 5 or 5 + unpack_from('>I4', value, 2) > #value then
        return nil
      end
      tallies, at = unpack_from('>I4c0', value, 2)
    end
    if is_extended then
      if at + 34 > #value then
        return nil
      end
      left, gone_at, granted_at, reset_at, reset_until, at = unpack_from('>I7I7I7I7I7', value, at)
    end
    local state = at == 2 and value or pack('B', tag) .. sub(value, at)
    return state, tallies, left, gone_at, granted_at, reset_at, reset_until
  end

  -- Returns the value of a counter without hits.
  local function unused(number, at)
    local windows = byte(text, at)
    if number == 4 then
      return rates().written(0, 0, 0, (unpack_from('>I4', text, at)))
    elseif number == 6 then
      return pack('>BI7I2', 26, 0, 0)
    elseif number == 2 or number == 3 then
      return ledgers().unused(16 + 2 * number, number == 2 and windows or 1)
    end
    return pack('>BI7', 18, 0) .. string.rep(pack('>I4', 0), number == 5 and 1 or windows)
  end

  local function joined(state, tallies, left, gone_at, granted_at, reset_at, reset_until)
    local tag, body = byte(state), sub(state, 2)
    if gone_at > 0 or reset_until > 0 then
      body = pack('>I7I7I7I7I7', left, gone_at, granted_at, reset_at, reset_until) .. body
      tag = tag + EXTENDED
    end
    if tallies ~= '' then
      return pack('>BI4', tag + TALLIED, #tallies) .. tallies .. body
    end
    return pack('B', tag) .. body
  end

  -- Returns the offset of an entry in the tallies and its hits; or nil, the number of entries, the
  -- offset of that with the fewest hits, and that of the entry which counts all others.
  local function find(tallies, entry)
    local place, count, fewest, least, others = 1, 0, math.huge, nil, nil
    while place + 1 <= #tallies do
      if place + 15 + unpack_from('>I2', tallies, place) > #tallies then
        break
      end
      local other, charged, denied, after = unpack_from('>I2c0I7I7', tallies, place)
      if other == entry then
        return place, charged, denied
      elseif other == '' then
        others = place
      else
        count = count + 1
        if charged + denied < fewest then
          fewest, least = charged + denied, place
        end
      end
      place = after
    end
    return nil, count, least, others
  end

  -- Returns the tallies with hits added to an entry, negative ones to the one that counts all
  -- others if there is no such entry.
  local function counted(tallies, entry, charged, denied)
    local place, had_charged, had_denied, others = find(tallies, entry)
    if not place then
      local count, least = had_charged, had_denied
      if charged < 0 then
        return others and counted(tallies, '', charged, denied) or tallies
      elseif entry ~= '' and count >= PLACES then
        local merged, of_charged, of_denied, after = unpack_from('>I2c0I7I7', tallies, least)
        tallies = counted(sub(tallies, 1, least - 1) .. sub(tallies, after), '', of_charged, of_denied)
      end
      return tallies .. pack('>I2c0I7I7', #entry, entry, charged, denied)
    end
    local hits = place + 2 + #entry
    return sub(tallies, 1, hits - 1)
      .. pack('>I7I7', min(max(had_charged + charged, 0), MAX_HITS), min(had_denied + denied, MAX_HITS))
      .. sub(tallies, hits + 14)
  end

  -- Returns the tallies with hits added to the entries of a check, which begin at `entries` of the
  -- text, or of another one.
  local function tallied(tallies, entries, charged, denied, other)
    local of, count, entry = other or text, nil, nil
    count, entries = unpack_from('B', of, entries)
    for _ = 1, count do
      entry, entries = unpack_from('>I2c0', of, entries)
      tallies = counted(tallies, entry, charged, denied)
    end
    return tallies
  end

  -- Returns a value with other tallies.
  local function with_tallies(value, tallies)
    local state, _, left, gone_at, granted_at, reset_at, reset_until = split(value)
    return joined(state, tallies, left, gone_at, granted_at, reset_at, reset_until)
  end

  -- Returns a value with hits added to the tallies of the entries of a check.
  local function with_hits(value, entries, charged, denied, other)
    local _, tallies = split(value)
    return with_tallies(value, tallied(tallies, entries, charged, denied, other))
  end

  -- Returns a value without its tallies, which others may change.
  local function bare(value)
    return value and #value > 0 and byte(value) >= WITH_DATA and with_tallies(value, '') or value
  end

  -- Returns a value with another state.
  local function with_state(value, state)
    return joined(state, select(2, split(value)))
  end

  -- Judges a check as judges[number] does, by a value with data next to the state. `entries`:
  -- offset in the text of the entries that a charge records, if there are any. The instant is that
  -- of the grant if the hits are from it. Also returns 8 if the state has changed, 24 if hits are
  -- from a grant, else 0, and the hits of the permits of an ID.
  local function judge(number, at, value, hits, writes, entries, of_grant)
    local of_state, clock = judges[number], now
    local state, tallies, left, gone_at, granted_at, reset_at, reset_until = false, '', 0, 0, 0, 0, 0
    if value then
      state, tallies, left, gone_at, granted_at, reset_at, reset_until = split(value)
      if not state then
        return (of_state(at, false, 0, 0))
      end
    end
    now = max(now, granted_at, reset_at)
    local may_be_granted = left > 0 and writes < REFUND
    local mode = may_be_granted and 0 or writes
    if writes == TAKE_BACK and (of_grant or charged_at <= reset_at) then
      mode = 0
    end
    local after, instant, allowed, new, lives_until, remaining, reset, retry, window, own = of_state(at, state, hits, mode)
    if not instant then
      now = clock
      return after, instant, allowed
    end
    local wrote, from_grant = new and 8 or 0, false
    if may_be_granted then
      if not allowed and instant < gone_at and hits <= left then
        -- Hits that do not fit the limit may be taken from a grant.
        from_grant = writes % 2 == 1
        left = from_grant and left - hits or left
        after, instant, allowed, new, lives_until, remaining, reset, retry, window = of_state(at, state, 0, REFUND)
        wrote, allowed = from_grant and 24 or 0, true
      elseif writes == BOTH or writes == (allowed and 1 or 2) then
        after, instant, allowed, new, lives_until, remaining, reset, retry, window = of_state(at, state, hits, BOTH)
        wrote = 8
      end
    elseif of_grant and writes == TAKE_BACK and charged_at == granted_at and instant < gone_at then
      left, wrote = left + hits, 24
    end
    now = clock
    local taken_at = from_grant and granted_at or instant
    if left > 0 and instant < gone_at then
      remaining = max(remaining, left)
    end
    local is_changed = wrote ~= 0
    if is_changed and instant >= gone_at then
      left, gone_at, granted_at = 0, 0, 0
    end
    if is_changed and instant >= reset_until then
      reset_at, reset_until = 0, 0
    end
    if entries and (is_changed or not allowed) then
      tallies, is_changed = tallied(tallies, entries, is_changed and hits or 0, allowed and 0 or hits), true
    end
    if lives_until or not value then
      lives_until = max(lives_until or 0, gone_at, reset_until)
    end
    local joint
    if is_changed then
      joint = joined(new or state or unused(number, at), tallies, left, gone_at, granted_at, reset_at, reset_until)
    end
    return after, taken_at, allowed, joint, lives_until, remaining, reset, retry, window, wrote, own
  end

  local functions = {
    split = split, joined = joined, unused = unused, tallied = tallied, with_hits = with_hits,
    with_tallies = with_tallies, with_state = with_state, judge = judge, bare = bare,
  }
  beside = function()
    return functions
  end
  return functions
end

-- Judges a check by any value, as judges[number] does; then returns how its hits were written (0,
-- WRITTEN or OF_GRANT), and the hits of the permits of an ID.
judged = function(number, at, value, hits, writes, entries, of_grant)
  if not entries and not of_grant then
    local after, instant, allowed, new, lives_until, left, reset, retry, window, own = judges[number](at, value, hits, writes)
    if instant or not value or #value == 0 or string.byte(value) < WITH_DATA then
      return after, instant, allowed, new, lives_until, left, reset, retry, window, new and WRITTEN or 0, own
    end
  end
  return beside().judge(number, at, value, hits, writes, entries, of_grant)
end
