-- decide: judges the checks of one or more requests of any kind, one request after the other, at one
-- instant, and charges according to their charge modes, in three steps: look, write, report. The
-- same steps as crates/core/src/algorithm/judge.rs and verdict.rs.
--
-- KEYS    the counters of the requests, in order; each counter once per request.
-- ARGV[1] and ARGV[2] as in begin.lua; the values as in beside.lua.
-- ARGV[3] and on, one request each: prior (1: 0 open, 1 denied, 2 admitted), partial (1: 1 if other slots judge the rest of the
--   request), keys (2), checks (2), then for each check: operation (1: 0 charge, 1 peek, 2 refund, 3 take-back, 4 take-back of
--   hits from a grant, 5 operation on existing holds; plus 16 if the limit keeps holds, with fields as in holds.lua), charge mode (1: 0 admitted,
--   1 blamed, 2 always, 3 afterwards), role (1: 0 enforce, 1 shadow, 2 quota, 3 quota in shadow), on_store_error (1: 0 error,
--   1 allow, 2 deny, 3 the caller decides), algorithm (1), number of the key in the request (2), hits (4), the instant of the
--   charge to take back (7), entries to record (1), then each entry with a length prefix (2); for a take-back, data from the
--   reply to the charge: a value, 1 if a digest follows (1), and the digest; then the
--   algorithm's parameters.
-- Reply   for each request: alternatives (1); for each check: verdict (1: 0 unreadable, 1 allowed, 2 denied, 3 no room, 4 not
--   written), written (1: 2 if from a grant), the instant of the evaluation or of the grant (7),
--   a report: remaining hits (7; negative for a fixed window with one period that counts hits beyond its
--   limit), window (1), reset_after (7), retry_after (7), both in us, 2^55 if absent. If the request was admitted here and other
--   slots or the caller decide the rest, alternatives is 1 and each check has more fields: a second report, of the counter without
--   the hits that only an admitted request is charged; data to restore that counter with a length prefix (2: 0 if it would not exist,
--   65535 if it is too long to return): its value, for a limit with records of holds with a length prefix (2) and followed by the
--   records that the request changes, as `packed` in holds.lua returns them; a digest of what was written (16). If the limit keeps
--   holds, 64 is added to the verdict and the fields of holds.lua follow, with alternatives a second time, for the request that is
--   not admitted. Or only the reply of `beyond` in counter.lua.
local CHARGES, PEEKS, REFUNDS, TAKES_BACK, TAKES_BACK_OF_GRANT, ON_HOLD = 0, 1, 2, 3, 4, 5
-- Added to the operation of a check whose limit keeps holds.
local HOLDS = 16
-- Added to a verdict in the reply if the effect on a hold follows.
local WITH_EFFECT = 64
local ADMITTED, BLAMED, ALWAYS, AFTERWARDS = 0, 1, 2, 3
local ENFORCE, SHADOW, QUOTA = 0, 1, 2
local UNREADABLE, ALLOWED, DENIED, NO_ROOM, NOT_WRITTEN, NO_VOTE = 0, 1, 2, 3, 4, 5
-- Longer values are not returned for restoring. A take-back then uses the receipt alone.
local NOT_KNOWN, LONGEST_VALUE = 65535, 4096

-- Returns the hits of a charge or a peek.
local function hits_of(check)
  return check.wanted <= PEEKS and check.hits or 0
end

-- Returns the hits that must fit: at least one for a peek at a limit that is charged afterwards.
local function needs(check)
  return max(hits_of(check), check.wanted == PEEKS and check.mode == AFTERWARDS and 1 or 0)
end

local function verdict(check, state)
  if check.wanted >= REFUNDS then
    return NO_VOTE
  end
  if check.hold and check.hold.known then
    return check.hold.conflicts and DENIED or ALLOWED
  end
  return judge(check, state, needs(check), 0) and ALLOWED or DENIED
end

-- Returns a value without its tallies, which others may have changed since.
local function bare(value)
  return value and string.byte(value) % EXTENDED >= TALLIED and with_data.with_tallies(value, '') or value
end

-- Returns the digest of a state, and of the records of these IDs.
local function digest_of(state, ids)
  local value = bare(state.value) or ''
  local beside = ids and holds.packed(state.holds, value, ids) or ''
  return string.sub(redis.sha1hex(value .. beside), 1, 16)
end

-- Returns the value that a counter would have without a charge, from the reply to that charge, and what
-- is beside it; nothing if the reply did not have it.
local function value_without(check)
  if check.otherwise and has_records(check) then
    local value, at = unpack_from('>I2c0', check.otherwise, 1)
    return value, string.sub(check.otherwise, at)
  end
  return check.otherwise
end

-- Returns true if nothing was written since a charge. A charge of the fast path has no digest,
-- which would add cost to every charge. It is repeated instead, and the result compared.
local function is_untouched(check, state, value, beside)
  if check.digest then
    return digest_of(state, beside and holds.ids_of(beside)) == check.digest
  end
  local charged, clock = state_of(check, value ~= '' and bare(value)), now
  if not charged or check.of_grant then
    return false
  end
  now = check.charged_at
  local _, changed = judge(check, charged, check.hits, BOTH)
  now = clock
  return changed and charged.value == bare(state.value)
end

-- Takes a charge back. If nothing was written since, restores the value that the counter would have without the hits that only
-- an admitted request is charged, so that nothing is lost if the clock steps back. Returns true if it took any.
local function undo(check, state)
  if state.restored and state.restored == check.digest then
    return true
  end
  local value, beside = value_without(check)
  if value and state.value and is_untouched(check, state, value, beside) then
    local _, tallies = split(state.value)
    local own = value
    if value == '' then
      own = tallies ~= '' and with_data.unused(check.number, check.parameters)
    end
    state.value = own and with_data.with_tallies(own, tallies)
    if place(check, state) then
      state.holds = beside and holds.restore(state.holds, value, beside)
      state.lives_until, state.restored = nil, check.digest
      return true
    end
  end
  if check.hold and not check.of_grant then
    return holds.take_back(check, state)
  elseif check.charged_at > state.at then
    return false
  end
  local _, took = judge(check, state, check.hits, TAKE_BACK)
  return took
end

-- Writes the hits if they are charged, those of a peek only to drafts; refunds and take-backs always. Returns true if the
-- counter changed.
local function write(check, state, charged, is_draft, ended)
  if check.hold and check.hold.known then
    return false
  elseif check.wanted == ON_HOLD then
    return holds.change(check, state, ended)
  elseif charged and (check.wanted == CHARGES or is_draft and check.wanted == PEEKS and check.hits > 0) then
    local granted_at
    if check.hold then
      granted_at = holds.charge(check, state)
    else
      granted_at = select(7, judge(check, state, check.hits, BOTH))
    end
    check.of_grant, check.at = granted_at ~= nil, granted_at or check.at
    return true
  elseif check.wanted == REFUNDS then
    return refund(check, state)
  elseif check.wanted == TAKES_BACK then
    return undo(check, state)
  end
  return false
end

local function charges(mode, allowed, admitted)
  if mode == ADMITTED then
    return admitted and allowed
  elseif mode == BLAMED then
    return admitted or not allowed
  end
  return true
end

-- Sets the verdict of each check, in order. Writes only to drafts, which later checks of the same counter use.
local function look(checks)
  local drafts, ended = {}, {}
  for i, check in ipairs(checks) do
    local state = drafts[check.key] or check.counter.state
    check.verdict = state and verdict(check, state) or UNREADABLE
    if state and check.asked_again then
      drafts[check.key] = drafts[check.key] or copy_of(state)
      write(check, drafts[check.key], charges(check.mode, check.verdict == ALLOWED, true), true, ended)
    end
  end
end

-- Returns the verdict of the request: 0 admitted, 1 denied, 2 failed; and true if the caller decides an unreadable check, which
-- counts as allowed here. Votes of other slots are unknown, so votes alone do not deny a partial request.
local function combine(request)
  local denied, failed, presumed, open, votes, passes = false, false, false, false, 0, 0
  local conflicts = false
  for _, check in ipairs(request) do
    conflicts = conflicts or check.hold and check.hold.conflicts
    local role, said = check.role, check.verdict
    local unknown = said == UNREADABLE and check.on_error or nil
    if said ~= NO_VOTE then
      if role == ENFORCE and said == DENIED then
        denied = true
      elseif role == ENFORCE and unknown == 2 then
        presumed = true
      elseif role == ENFORCE or role == QUOTA then
        failed = failed or unknown == 0
        open = open or unknown == 3
      end
      if role == QUOTA and (said == DENIED or unknown == 2) then
        votes = votes + 1
      elseif role >= QUOTA then
        passes = passes + 1
      end
    end
  end
  local outvoted = votes > 0 and passes == 0 and not request.partial
  local overall = (presumed or outvoted) and 1 or 0
  if request.prior == 1 or conflicts or (request.prior == 0 and denied) then
    overall = 1
  elseif failed then
    overall = 2
  elseif request.prior == 2 then
    overall = 0
  end
  return overall, open
end

local function own_state(check)
  return check.counter.state
end

-- Charges the states returned by `state_of`, depending on whether the request is admitted.
local function settle(request, admitted, state_of)
  local ended = {}
  for _, check in ipairs(request) do
    local state = check.verdict ~= UNREADABLE and state_of(check)
    if state then
      check.at = state.at
      if check.hold then
        holds.begin(check)
      end
      check.written = write(check, state, charges(check.mode, check.verdict == ALLOWED, admitted), false, ended)
    end
  end
end

-- Returns the report of the binding window. Remaining hits are those of all windows.
local function report(check, state)
  if not state then
    return pack('>I7BI7I7', 0, 0, 0, 0)
  end
  local is_denied = check.verdict == DENIED
  -- A refund of nothing is reported as admitted, whatever the counter has.
  local _, _, left, reset, retry, window =
    judge(check, state, is_denied and check.sum or 0, is_denied and DENIED_REPORT or REFUND)
  return pack('>I7BI7I7', left, window, reset, is_denied and retry or ABSENT)
end

-- Adds the hits to the tallies of the entries that the limit records.
local function tally(check, state)
  local undoes = check.wanted == TAKES_BACK and check.written
  local adds = check.wanted == CHARGES and (check.written or check.verdict == DENIED)
    and not (check.hold and check.hold.known)
  if not check.entries or not state or not (adds or undoes) then
    return
  end
  local value, tallies, charged, denied = state.value, '', 0, 0
  if value then
    local _, own = split(value)
    tallies = own
  else
    value = with_data.unused(check.number, check.parameters)
  end
  if check.written then
    charged = undoes and -check.hits or check.hits
  end
  if adds and check.verdict == DENIED then
    denied = check.hits
  end
  text = check.text
  state.value = with_data.with_tallies(value, with_data.tallied(tallies, check.entries, charged, denied))
  check.counter.dirty, check.counter.writer = true, check
end

-- Number of keys of the previous requests.
local keys_before = 0

local function parse(own_text)
  text = own_text
  local keys, count, at
  local request = {}
  request.prior, request.partial, keys, count, at = unpack_from('>BBI2I2', text, 1)
  request.partial = request.partial == 1
  local last_of = {}
  for i = 1, count do
    local check, recorded = { text = text }
    check.wanted, check.mode, check.role, check.on_error, check.number, check.key, check.hits, check.charged_at, recorded, at =
      unpack_from('>BBBBBI2I4I7B', text, at)
    if recorded > 0 then
      check.entries = at - 1
    end
    for _ = 1, recorded do
      at = at + 2 + unpack_from('>I2', text, at)
    end
    local has_hold = check.wanted >= HOLDS
    check.wanted = check.wanted - (has_hold and HOLDS or 0)
    check.of_grant = check.wanted == TAKES_BACK_OF_GRANT
    if check.of_grant then
      check.wanted = TAKES_BACK
    end
    if check.wanted == TAKES_BACK then
      local length
      length, at = unpack_from('>I2', text, at)
      if length ~= NOT_KNOWN then
        check.otherwise = string.sub(text, at, at + length - 1)
        at = at + length
      end
      local has_digest
      has_digest, at = unpack_from('B', text, at)
      if has_digest == 1 then
        check.digest, at = unpack_from('c16', text, at)
      end
    end
    check.key = KEYS[keys_before + check.key]
    check.parameters = at
    at = judges[check.number](at, false, 0, 0)
    if has_hold then
      at = holds.parse(check, text, at)
      check.hold.key = KEYS[keys_before + check.hold.key]
    end
    -- A denied caller retries with all hits of this request to the counter so far.
    local before = last_of[check.key]
    local so_far = before and before.so_far or 0
    check.sum = so_far + needs(check)
    check.so_far = so_far + hits_of(check)
    check.before = before
    -- Only a vote depends on what the checks before it write.
    while before and not before.asked_again and check.wanted <= PEEKS do
      before.asked_again, before = true, before.before
    end
    last_of[check.key] = check
    check.counter = load_counter(check)
    if check.counter.number ~= check.number then
      check.counter = {}
    end
    load_holds(check)
    request[i] = check
  end
  keys_before = keys_before + keys
  return request
end

local judged = {}

-- Returns the fields of a check's reply for the case that the request is not admitted.
local function undo_of(check, state, otherwise)
  local value, ids = otherwise.value, nil
  if state and otherwise.state and has_records(check) then
    ids = holds.changed(state.holds, otherwise.state.holds)
    value = pack('>I2c0', #value, value) .. holds.packed(otherwise.state.holds, value, ids)
  end
  local is_known = #value <= LONGEST_VALUE
  return otherwise.report .. pack('>I2', is_known and #value or NOT_KNOWN) .. (is_known and value or '')
    .. (state and digest_of(state, ids) or string.rep(' ', 16))
end

local function decide(request)
  for _, check in ipairs(request) do
    local answer = check.counter.state and beyond(check, check.counter.state)
    if answer then
      reply[#reply + 1] = answer
      return
    end
  end
  if holds then
    holds.find_held(request)
  end
  look(request)
  local overall, open = combine(request)
  local alternatives
  if overall == 0 and (request.partial or open) then
    local copies = {}
    local function copied(check)
      local counter = check.counter
      copies[counter] = copies[counter] or copy_of(counter.state)
      return copies[counter]
    end
    settle(request, false, copied)
    alternatives = {}
    for i, check in ipairs(request) do
      local copy = check.verdict ~= UNREADABLE and copied(check)
      alternatives[i] = {
        state = copy,
        value = copy and bare(copy.value) or '',
        report = report(check, copy),
        effect = check.hold and holds.reply(check) or '',
      }
    end
  end
  settle(request, overall == 0, own_state)
  reply[#reply + 1] = pack('B', alternatives and 1 or 0)
  for i, check in ipairs(request) do
    local state = check.verdict ~= UNREADABLE and own_state(check)
    tally(check, state)
    check.stands = #request > 1 or not check.counter.dirty
    if check.written then
      check.counter.dirty, check.counter.writer = true, check
      if not check.hold and state then
        -- Holds of the value before this write do not count.
        check.counter.value, state.holds = false, nil
      end
    end
    local said = check.verdict == NO_VOTE and ALLOWED or check.verdict
    said = said + (check.hold and WITH_EFFECT or 0)
    reply[#reply + 1] = pack('>BBI7', said, check.written and (check.of_grant and 2 or 1) or 0, check.at or now)
    check.place = #reply
    judged[#judged + 1] = check
    reply[#reply + 1] = report(check, state)
    if alternatives then
      reply[#reply + 1] = undo_of(check, state, alternatives[i])
    end
    if check.hold then
      reply[#reply + 1] = holds.reply(check)
    end
    if alternatives then
      reply[#reply + 1] = alternatives[i].effect
    end
  end
end

for i = 3, #ARGV do
  decide(parse(ARGV[i]))
end

local saved, failed = false, false
for key, counter in pairs(counters) do
  if counter.dirty then
    local err = save(key, counter)
    if err then
      -- A replica after a failover: nothing ran, and the caller may retry at the new master.
      if not saved and string.sub(err, 1, 8) == 'READONLY' then
        return redis.error_reply(err)
      end
      counter.failed = string.sub(err, 1, 3) == 'OOM' and NO_ROOM or NOT_WRITTEN
      failed = true
    else
      saved = true
    end
  end
end
if failed then
  -- A check based on a value that could not be saved counts as not evaluated. A denial remains valid if it is based on the stored
  -- value, or if other checks of its request were not charged because of it: without it they would be free.
  for _, check in ipairs(judged) do
    if check.counter.failed then
      local stands = check.verdict == DENIED and check.stands
      local said = (stands and DENIED or check.counter.failed) + (check.hold and WITH_EFFECT or 0)
      reply[check.place] = pack('>BBI7', said, 0, check.at or now)
    end
  end
end
return table.concat(reply)
