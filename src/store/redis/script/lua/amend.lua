-- amend: changes one counter for an operator, and returns its state before and after. The same steps as src/algorithm/amend.rs.
--
-- KEYS    the counter of each request.
-- ARGV[1] and ARGV[2] as in counter.lua, which also defines the format of the values.
-- ARGV[3] and on, one request each: operation (1: 0 look, 1 reset, 2 refund, 3 grant), algorithm (1), hits (4), duration of the grant
--   in us (7); then the algorithm's parameters.
-- Reply   for each request: 3 (1); verdict (1: as in decide.lua); if that is 1, the state before and after: instant (7), remaining
--   hits of a grant (7), the instant at which they expire (7), windows (1), for each: counted hits (7), remaining hits (7),
--   reset_after (7), time until one hit fits (7), both in us, 2^55 if absent. Or the reply of `beyond` in counter.lua.
local RESET, REFUND, GRANT = 1, 2, 3
-- Added to the operation if the limit keeps holds; their hash is the next key.
local HOLDS = 16
local AMENDED, UNREADABLE, DONE, NO_ROOM, NOT_WRITTEN = 3, 0, 1, 3, 4
local ABSENT = 36028797018963968

local function look(check, state, at)
  local left = state.extended and granted(state, at) or 0
  local parts = { pack('>I7I7I7B', at, left, left > 0 and state.extended[GONE_AT] or 0, #check.limit.windows) }
  for i = 1, #check.limit.windows do
    local remaining, reset, retry = check.algorithm.report(check.limit, state, i, 1, at)
    local counts = check.algorithm.counts(check.limit, state, i, at)
    parts[i + 1] = pack('>I7I7I7I7', counts, remaining, reset, retry or ABSENT)
  end
  return table.concat(parts)
end

-- Resets the counter to unused, and its clock to this server's. Charges made before are not taken back from later charges: those
-- ahead of the clock neither, see `undo` in decide.lua.
local function reset(check, counter)
  local before = counter.state
  if not before.exists and counter.tallies == '' then
    return false
  end
  local matters_until = check.algorithm.matters_until(check.limit, before)
  if before.extended then
    matters_until = math.max(matters_until, before.extended[GONE_AT], before.extended[RESET_UNTIL])
  end
  if before.holds then
    matters_until = math.max(matters_until, before.holds.latest)
  end
  -- Holds of the value before the reset do not count.
  counter.value = false
  counter.state, counter.tallies = check.algorithm.unused(check.limit), ''
  counter.state.extended = { 0, 0, 0, now, matters_until }
  settle_extended(counter.state, now)
  counter.state.exists = counter.state.extended ~= nil
  return true
end

-- Its instant differs from that of any earlier grant or reset, so that hits taken from another grant are not returned to it.
local function grant(check, state, at)
  local before = state.extended and granted(state, at) or 0
  local granted_at = math.max(at, marked(state) + 1)
  local _, _, _, reset_at, reset_until = unpack(state.extended or { 0, 0, 0, 0, 0 })
  state.extended = check.hits > 0 and { check.hits, granted_at + check.length, granted_at, reset_at, reset_until }
    or { 0, 0, 0, reset_at, reset_until }
  settle_extended(state, granted_at)
  state.exists = state.exists or check.hits > 0
  return check.hits > 0 or before > 0
end

local function amend(check, counter, at)
  if check.what == RESET then
    return reset(check, counter)
  elseif check.what == REFUND then
    local took = refund(check, counter.state, at)
    if took and counter.state.extended then
      settle_extended(counter.state, at)
    end
    return took
  end
  return check.what == GRANT and grant(check, counter.state, at)
end

local keys_before = 0

local function parse(text)
  local check, algorithm, at = {}
  check.what, algorithm, check.hits, check.length, at = unpack_from('>BBI4I7', text, 1)
  local has_hold = check.what >= HOLDS
  check.what = check.what - (has_hold and HOLDS or 0)
  check.key, keys_before = KEYS[keys_before + 1], keys_before + 1
  check.algorithm, check.tag = algorithms[algorithm], 16 + 2 * algorithm
  check.limit, at = check.algorithm.parameters(text, at)
  if has_hold then
    holds.parse(check, text, at)
    check.hold.key, keys_before = KEYS[keys_before + 1], keys_before + 1
  end
  return check
end

local reply = {}
for i = 3, #ARGV do
  local check = parse(ARGV[i])
  local counter = load_counter(check)
  check.counter = counter
  load_holds(check)
  local verdict, looks = DONE
  local answer = counter.state and beyond(check, counter.state)
  if check.what == RESET then
    answer = answer or beyond(check, check.algorithm.unused(check.limit))
  end
  if answer then
    reply[#reply + 1] = answer
  elseif counter.state then
    local at = instant(counter.state)
    looks = look(check, counter.state, at)
    if amend(check, counter, at) then
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
    looks = looks .. look(check, counter.state, instant(counter.state))
  else
    verdict = UNREADABLE
  end
  if not answer then
    reply[#reply + 1] = pack('BB', AMENDED, verdict) .. (verdict == DONE and looks or '')
  end
end
return table.concat(reply)
