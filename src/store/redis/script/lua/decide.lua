-- decide: judges the checks of one or more requests of any kind, one request after the other, at one
-- instant, and charges according to their charge modes, in three steps: look, write, report. The
-- same steps as src/algorithm/judge.rs and verdict.rs.
--
-- KEYS    the counters of the requests, in order; each counter once per request.
-- ARGV[1] and ARGV[2] as in counter.lua, which also defines the format of the values.
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
local CHARGE, PEEK, REFUND, TAKE_BACK, TAKE_BACK_OF_GRANT, ON_HOLD = 0, 1, 2, 3, 4, 5
-- Added to the operation of a check whose limit keeps holds.
local HOLDS = 16
-- Added to a verdict in the reply if the effect on a hold follows.
local WITH_EFFECT = 64
local ADMITTED, BLAMED, ALWAYS, AFTERWARDS = 0, 1, 2, 3
local ENFORCE, SHADOW, QUOTA = 0, 1, 2
local UNREADABLE, ALLOWED, DENIED, NO_ROOM, NOT_WRITTEN, NO_VOTE = 0, 1, 2, 3, 4, 5
local ABSENT = 36028797018963968
-- Longer values are not returned for restoring. A take-back then uses the receipt alone.
local NOT_KNOWN, LONGEST_VALUE = 65535, 4096

-- Returns the hits of a charge or a peek.
local function hits_of(check)
  return check.wanted <= PEEK and check.hits or 0
end

-- Returns the hits that must fit: at least one for a peek at a limit that is charged afterwards.
local function needs(check)
  return math.max(hits_of(check), check.wanted == PEEK and check.mode == AFTERWARDS and 1 or 0)
end

local function verdict(check, state)
  if check.wanted >= REFUND then
    return NO_VOTE
  end
  if check.hold and check.hold.known then
    return check.hold.conflicts and DENIED or ALLOWED
  end
  local hits, at = needs(check), instant(state)
  if check.algorithm.allows(check.limit, state, hits, at) then
    return ALLOWED
  end
  -- Hits that do not fit the limit may be taken from a grant.
  local left = state.extended and granted(state, at) or 0
  return left > 0 and hits <= left and ALLOWED or DENIED
end

local function take_of_grant(state, hits)
  local left, gone_at, granted_at, reset_at, reset_until = unpack(state.extended)
  state.extended = { left - hits, gone_at, granted_at, reset_at, reset_until }
end

-- Returns the digest of a state, and of the records of these IDs.
local function digest_of(check, state, ids)
  local value = value_of(check, state)
  local beside = ids and holds.packed(state.holds, value, ids) or ''
  return string.sub(redis.sha1hex(value .. beside), 1, 16)
end

-- Returns the state that a counter would have without a charge, from the reply to that charge, with
-- its value and what is beside it.
local function state_without(check)
  local value, beside, at = check.otherwise, nil, nil
  if value and has_records(check) then
    value, at = unpack_from('>I2c0', value, 1)
    beside = string.sub(check.otherwise, at)
  end
  if value == '' then
    return check.algorithm.unused(check.limit), value, beside
  end
  return value and (read_value(check, value)), value, beside
end

-- Returns true if nothing was written since a charge. A charge of the fast path has no digest,
-- which would add cost to every charge. It is repeated instead, and the result compared.
local function is_untouched(check, state)
  if check.digest then
    local _, _, beside = state_without(check)
    return digest_of(check, state, beside and holds.ids_of(beside)) == check.digest
  end
  local charged, is_beyond = state_without(check), check.algorithm.is_beyond
  if not charged or is_beyond and is_beyond(check.limit, check.charged_at) then
    return false
  end
  check.algorithm.charge(check.limit, charged, check.hits, check.charged_at)
  return value_of(check, charged) == value_of(check, state)
end

-- Takes a charge back. If nothing was written since, restores the state that the counter would have without the hits that only
-- an admitted request is charged, so that nothing is lost if the clock steps back. Returns true if it took any, and true if it
-- restored the state.
local function undo(check, state, at)
  if state.restored and state.restored == check.digest then
    return true, true
  end
  if check.otherwise and is_untouched(check, state) then
    local instead, value, beside = state_without(check)
    if instead then
      instead.holds = beside and holds.restore(state.holds, value, beside)
      for name in pairs(state) do
        state[name] = nil
      end
      for name, field in pairs(instead) do
        state[name] = field
      end
      state.restored = check.digest
      return true, true
    end
  end
  if check.hold and not check.of_grant then
    return holds.take_back(check, state, at)
  end
  local extended = state.extended
  if check.of_grant then
    local is_there = extended ~= nil and check.charged_at == extended[GRANTED_AT] and at < extended[GONE_AT]
    if is_there then
      take_of_grant(state, -check.hits)
    end
    return is_there
  elseif check.charged_at > at or extended and check.charged_at <= extended[RESET_AT] then
    -- Made before a reset, which also sets a clock that is ahead.
    return false
  end
  return check.algorithm.take_back(check.limit, state, check.hits, check.charged_at, at)
end

-- Writes the hits if they are charged, those of a peek only to drafts; refunds and take-backs always. Returns true if the
-- counter changed.
local function write(check, state, charged, is_draft, ended)
  local at, took, is_restored = instant(state), false, false
  if check.hold and check.hold.known then
    return false
  elseif check.wanted == ON_HOLD then
    took = holds.change(check, state, at, ended)
    state.exists = state.exists or took
  elseif charged and (check.wanted == CHARGE or is_draft and check.wanted == PEEK and check.hits > 0) then
    check.of_grant = state.extended and check.hits <= granted(state, at)
      and not check.algorithm.allows(check.limit, state, check.hits, at)
    if check.of_grant then
      check.at = state.extended[GRANTED_AT]
      take_of_grant(state, check.hits)
      if check.hold then
        holds.of_grant(check)
      end
    elseif check.hold then
      holds.charge(check, state, at)
    else
      check.algorithm.charge(check.limit, state, check.hits, at)
    end
    took = true
  elseif check.wanted == REFUND then
    took = refund(check, state, at)
  elseif check.wanted == TAKE_BACK then
    took, is_restored = undo(check, state, at)
  end
  if took and state.extended and not is_restored then
    settle_extended(state, at)
  end
  return took
end

local function charges(mode, allowed, admitted)
  if mode == ADMITTED then
    return admitted and allowed
  elseif mode == BLAMED then
    return admitted or not allowed
  end
  return true
end

-- Returns a copy of a counter's state, which can be written without changing it.
local function copy_of(check, state)
  local copy = check.algorithm.copy(state)
  copy.exists, copy.extended = state.exists, state.extended
  copy.holds = state.holds and holds.copy(state.holds)
  return copy
end

-- Sets the verdict of each check, in order. Writes only to drafts, which later checks of the same counter use.
local function look(checks)
  local drafts, ended = {}, {}
  for i, check in ipairs(checks) do
    local state = drafts[check.key] or check.counter.state
    check.verdict = state and verdict(check, state) or UNREADABLE
    if state and check.asked_again then
      drafts[check.key] = drafts[check.key] or copy_of(check, state)
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
      check.at = instant(state)
      if check.hold then
        holds.begin(check)
      end
      check.written = write(check, state, charges(check.mode, check.verdict == ALLOWED, admitted), false, ended)
      state.exists = state.exists or (check.written and check.wanted == CHARGE)
    end
  end
end

-- Returns the report of the binding window: for a denial the one with the longest wait, else the one with the fewest remaining
-- hits; ties go to the longer period, then to the first one. Remaining hits are those of all windows.
local function report(check, state)
  if not state then
    return pack('>I7BI7I7', 0, 0, 0, 0)
  end
  local denied = check.verdict == DENIED and check.sum or nil
  local at, windows = instant(state), check.limit.windows
  local left, reset, retry = check.algorithm.report(check.limit, state, 1, denied, at)
  local window, fewest = 1, left
  for i = 2, #windows do
    local other_left, other_reset, other_retry = check.algorithm.report(check.limit, state, i, denied, at)
    local rank, other_rank = -left, -other_left
    if denied then
      rank, other_rank = retry or ABSENT, other_retry or ABSENT
    end
    fewest = math.min(fewest, other_left)
    if other_rank > rank or (other_rank == rank and windows[i].period > windows[window].period) then
      left, reset, retry, window = other_left, other_reset, other_retry, i
    end
  end
  -- A request takes all its hits either from the limit or from the grant.
  fewest = math.max(fewest, state.extended and granted(state, at) or 0)
  if fewest == 0 and #windows == 1 and check.algorithm == algorithms[1] and windows[1].limit > 0 then
    fewest = math.min(windows[1].limit - check.algorithm.counts(check.limit, state, 1, at), 0)
  end
  return pack('>I7BI7I7', fewest, window - 1, reset, retry or ABSENT)
end

-- Adds the hits to the tallies of the entries that the limit records. If all places are taken, the entry with the fewest hits is
-- merged into the empty entry, which counts all others.
local PLACES = 40
local function tally(check)
  local undoes = check.wanted == TAKE_BACK and check.written
  local adds = check.wanted == CHARGE and (check.written or check.verdict == DENIED)
    and not (check.hold and check.hold.known)
  if #check.recorded == 0 or check.verdict == UNREADABLE or not (adds or undoes) then
    return
  end
  local counter = check.counter
  local tallies, at, count = {}, 1, 0
  while at <= #counter.tallies do
    local entry, charged, denied
    entry, charged, denied, at = unpack_from('>I2c0I7I7', counter.tallies, at)
    tallies[entry], count = { charged, denied }, count + (entry == '' and 0 or 1)
  end
  for _, entry in ipairs(undoes and {} or check.recorded) do
    if not tallies[entry] and count >= PLACES then
      local least, fewest = nil, math.huge
      for other, hits in pairs(tallies) do
        if other ~= '' and hits[1] + hits[2] < fewest then
          least, fewest = other, hits[1] + hits[2]
        end
      end
      local others = tallies[''] or { 0, 0 }
      tallies[''] = { others[1] + tallies[least][1], others[2] + tallies[least][2] }
      tallies[least], count = nil, count - 1
    end
    if not tallies[entry] then
      tallies[entry], count = { 0, 0 }, count + 1
    end
    local own = tallies[entry]
    own[1] = math.min(own[1] + (check.written and check.hits or 0), MAX_HITS)
    own[2] = math.min(own[2] + (check.verdict == DENIED and check.hits or 0), MAX_HITS)
  end
  for _, entry in ipairs(undoes and check.recorded or {}) do
    -- The entry may have been replaced since.
    local own = tallies[entry] or tallies['']
    if own then
      own[1] = math.max(own[1] - check.hits, 0)
    end
  end
  local packed = {}
  for entry, hits in pairs(tallies) do
    packed[#packed + 1] = pack('>I2c0I7I7', #entry, entry, hits[1], hits[2])
  end
  counter.tallies, counter.dirty, counter.writer = table.concat(packed), true, check
end

-- Number of keys of the previous requests.
local keys_before = 0

local function parse(text)
  local keys, count, at
  local request = {}
  request.prior, request.partial, keys, count, at = unpack_from('>BBI2I2', text, 1)
  request.partial = request.partial == 1
  local last_of = {}
  for i = 1, count do
    local check, algorithm, recorded = { recorded = {} }
    check.wanted, check.mode, check.role, check.on_error, algorithm, check.key, check.hits, check.charged_at, recorded, at =
      unpack_from('>BBBBBI2I4I7B', text, at)
    for j = 1, recorded do
      check.recorded[j], at = unpack_from('>I2c0', text, at)
    end
    local has_hold = check.wanted >= HOLDS
    check.wanted = check.wanted - (has_hold and HOLDS or 0)
    check.of_grant = check.wanted == TAKE_BACK_OF_GRANT
    if check.of_grant then
      check.wanted = TAKE_BACK
    end
    if check.wanted == TAKE_BACK then
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
    check.algorithm, check.tag = algorithms[algorithm], 16 + 2 * algorithm
    check.limit, at = check.algorithm.parameters(text, at)
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
    while before and not before.asked_again and check.wanted <= PEEK do
      before.asked_again, before = true, before.before
    end
    last_of[check.key] = check
    check.counter = load_counter(check)
    if check.counter.algorithm ~= check.algorithm then
      check.counter = {}
    end
    load_holds(check)
    request[i] = check
  end
  keys_before = keys_before + keys
  return request
end

local reply, judged = {}, {}

-- Returns the fields of a check's reply for the case that the request is not admitted.
local function undo_of(check, state, otherwise)
  local value, ids = otherwise.value, nil
  if state and otherwise.state and has_records(check) then
    ids = holds.changed(state.holds, otherwise.state.holds)
    value = pack('>I2c0', #value, value) .. holds.packed(otherwise.state.holds, value, ids)
  end
  local is_known = #value <= LONGEST_VALUE
  return otherwise.report .. pack('>I2', is_known and #value or NOT_KNOWN) .. (is_known and value or '')
    .. (state and digest_of(check, state, ids) or string.rep(' ', 16))
end

local function judge(request)
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
      copies[counter] = copies[counter] or copy_of(check, counter.state)
      return copies[counter]
    end
    settle(request, false, copied)
    alternatives = {}
    for i, check in ipairs(request) do
      local copy = check.verdict ~= UNREADABLE and copied(check)
      alternatives[i] = {
        state = copy,
        value = copy and copy.exists and value_of(check, copy) or '',
        report = report(check, copy),
        effect = check.hold and holds.reply(check) or '',
      }
    end
  end
  settle(request, overall == 0, own_state)
  reply[#reply + 1] = pack('B', alternatives and 1 or 0)
  for i, check in ipairs(request) do
    local state = check.verdict ~= UNREADABLE and own_state(check)
    tally(check)
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
  judge(parse(ARGV[i]))
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
