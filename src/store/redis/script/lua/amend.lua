-- amend: changes one counter for an operator, and returns its state before and after. The same steps
-- as crates/core/src/algorithm/amend.rs.
--
-- KEYS    the counter of each request.
-- ARGV[1] and ARGV[2] as in begin.lua; the values as in beside.lua.
-- ARGV[3] and on, one request each: operation (1: 0 look, 1 reset, 2 refund, 3 grant), algorithm (1), hits (4), duration of the grant
--   in us (7); then the algorithm's parameters.
-- Reply   for each request: 3 (1); verdict (1: as in decide.lua); if that is 1, the state before and after: instant (7), remaining
--   hits of a grant (7), the instant at which they expire (7), windows (1), for each: counted hits (7), remaining hits (7),
--   reset_after (7), time until one hit fits (7), both in us, 2^55 if absent. Or the reply of `beyond` in counter.lua.
local RESETS, REFUNDS, GRANTS = 1, 2, 3
-- Added to the operation if the limit keeps holds; their hash is the next key.
local HOLDS = 16
local AMENDED, UNREADABLE, DONE, NO_ROOM, NOT_WRITTEN = 3, 0, 1, 3, 4

local function look(check, state)
  local left, gone_at = 0, 0
  if state.value then
    left, gone_at = select(3, split(state.value))
  end
  if left == 0 or state.at >= gone_at then
    left, gone_at = 0, 0
  end
  usages = {}
  judge(check, state, 1, DENIED_REPORT)
  return pack('>I7I7I7B', state.at, left, gone_at, #usages) .. table.concat(usages)
end

-- Resets the counter to unused, and its clock to this server's. Charges made before are not taken back from later charges: those
-- ahead of the clock neither, see `undo` in decide.lua.
local function reset(check, counter)
  local before = counter.state
  if not before.value then
    return false
  end
  local matters = max(matters_until(check, before), before.holds and before.holds.latest or 0)
  -- Holds of the value before the reset do not count.
  counter.value, counter.state = false, unused_state(check)
  if matters > now then
    counter.state.value = joined(with_data.unused(check.number, check.parameters), '', 0, 0, 0, now, matters)
    place(check, counter.state)
  end
  return true
end

-- Its instant differs from that of any earlier grant or reset, so that hits taken from another grant are not returned to it.
local function grant(check, state)
  local own, tallies, before, gone_at, granted_at, reset_at, reset_until = false, '', 0, 0, 0, 0, 0
  if state.value then
    own, tallies, before, gone_at, granted_at, reset_at, reset_until = split(state.value)
  end
  local is_changed = check.hits > 0 or before > 0 and state.at < gone_at
  granted_at = max(state.at, max(granted_at, reset_at) + 1)
  if granted_at >= reset_until then
    reset_at, reset_until = 0, 0
  end
  local left, ends = check.hits, granted_at + check.length
  if left == 0 or check.length == 0 then
    left, ends = 0, 0
  end
  if own or left > 0 then
    state.lives_until = nil
    state.value = joined(own or with_data.unused(check.number, check.parameters), tallies, left, ends,
      left > 0 and granted_at or 0, reset_at, reset_until)
    place(check, state)
  end
  return is_changed
end

local function amend(check, counter)
  if check.what == RESETS then
    return reset(check, counter)
  elseif check.what == REFUNDS then
    return refund(check, counter.state)
  end
  return check.what == GRANTS and grant(check, counter.state)
end

local keys_before = 0

local function parse(own_text)
  text = own_text
  local check, at = { text = own_text }
  check.what, check.number, check.hits, check.length, at = unpack_from('>BBI4I7', text, 1)
  local has_hold = check.what >= HOLDS
  check.what = check.what - (has_hold and HOLDS or 0)
  check.key, keys_before = KEYS[keys_before + 1], keys_before + 1
  check.parameters = at
  at = judges[check.number](at, false, 0, 0)
  if has_hold then
    holds.parse(check, text, at)
    check.hold.key, keys_before = KEYS[keys_before + 1], keys_before + 1
  end
  return check
end

for i = 3, #ARGV do
  local check = parse(ARGV[i])
  local counter = load_counter(check)
  check.counter = counter
  load_holds(check)
  local verdict, looks = DONE
  local answer = counter.state and beyond(check, counter.state)
  if check.what == RESETS then
    answer = answer or beyond(check, unused_state(check))
  end
  if answer then
    reply[#reply + 1] = answer
  elseif counter.state then
    looks = look(check, counter.state)
    if amend(check, counter) then
      counter.writer = check
      local err = save(check.key, counter)
      if err and #reply == 0 and string.sub(err, 1, 8) == 'READONLY' then
        return redis.error_reply(err)
      end
      if err then
        counters[check.key] = nil
      end
      verdict = err and (string.sub(err, 1, 3) == 'OOM' and NO_ROOM or NOT_WRITTEN) or DONE
    end
    looks = looks .. look(check, counter.state)
  else
    verdict = UNREADABLE
  end
  if not answer then
    reply[#reply + 1] = pack('BB', AMENDED, verdict) .. (verdict == DONE and looks or '')
  end
end
return table.concat(reply)
