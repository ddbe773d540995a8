-- amend: what people do to one counter, and how it was before and is after. The same steps as src/algorithm/amend.rs.
--
-- KEYS    the counter of each request.
-- ARGV[1] and ARGV[2] as in counter.lua, where the values are told as well.
-- ARGV[3] and on, a request each: what (1: 0 look, 1 reset, 2 refund, 3 grant), algorithm (1), hits (4), for how long hits are granted
--   in us (7); then the algorithm's parameters.
-- Reply   of each request: 3 (1); verdict (1: as in decide.lua); where that is 1, how the counter was and how it is: instant (7), hits
--   that a grant has left (7), the instant at which they are gone (7), windows (1), of each: hits that count (7), hits left (7),
--   reset_after (7), time until one hit fits (7), both in us and 2^55 where absent.
local LOOK, RESET, REFUND, GRANT = 0, 1, 2, 3
local AMENDED, UNREADABLE, DONE, NO_ROOM, NOT_WRITTEN = 3, 0, 1, 3, 4
local ABSENT = 36028797018963968

local function look(check, state, at)
  local left = granted(state, at)
  local parts = { pack('>I7I7I7B', at, left, left > 0 and state.extended.gone_at or 0, #check.limit.windows) }
  for i = 1, #check.limit.windows do
    local remaining, reset, retry = check.algorithm.report(check.limit, state, i, 1, at)
    local counts = check.algorithm.counts(check.limit, state, i, at)
    parts[i + 1] = pack('>I7I7I7I7', counts, remaining, reset, retry or ABSENT)
  end
  return table.concat(parts)
end

local function extend(state)
  state.extended = state.extended or { left = 0, gone_at = 0, reset_at = 0, reset_until = 0 }
  return state.extended
end

-- As if never used; charges from before are not taken back from what is charged after.
local function reset(check, counter, at)
  local state = counter.state
  if not state.exists and counter.tallies == '' then
    return false
  end
  local reset_until = matters_until(check, state)
  counter.state, counter.tallies = check.algorithm.unused(check.limit), ''
  if reset_until > at then
    local extended = extend(counter.state)
    extended.reset_at, extended.reset_until = at, reset_until
    counter.state.exists = true
  end
  return true
end

local function grant(check, state, at)
  local before, extended = granted(state, at), extend(state)
  extended.left, extended.gone_at = check.hits, at + check.length
  settle_state(state, at)
  state.exists = state.exists or check.hits > 0
  return check.hits > 0 or before > 0
end

local function amend(check, counter, at)
  if check.what == RESET then
    return reset(check, counter, at)
  elseif check.what == REFUND then
    return refund(check, counter.state, check.hits, at)
  end
  return check.what == GRANT and grant(check, counter.state, at)
end

local function parse(text, key)
  local check, algorithm, at = { key = key }
  check.what, algorithm, check.hits, check.length, at = unpack_from('>BBI4I7', text, 1)
  check.algorithm, check.tag = algorithms[algorithm], 16 + 2 * algorithm
  check.limit = check.algorithm.parameters(text, at)
  return check
end

local reply = {}
for i = 3, #ARGV do
  local check = parse(ARGV[i], KEYS[i - 2])
  local counter = read_counter(check)
  local verdict, before = DONE
  if counter.state then
    local at = instant(counter.state)
    before = look(check, counter.state, at)
    if amend(check, counter, at) then
      counter.writer = check
      local err = save(check.key, counter)
      if err and #reply == 0 and string.sub(err, 1, 8) == 'READONLY' then
        return redis.error_reply(err)
      end
      verdict = err and (string.sub(err, 1, 3) == 'OOM' and NO_ROOM or NOT_WRITTEN) or DONE
    end
    before = before .. look(check, counter.state, at)
  else
    verdict = UNREADABLE
  end
  reply[#reply + 1] = pack('BB', AMENDED, verdict) .. (verdict == DONE and before or '')
end
return table.concat(reply)
