-- decide: judges requests one after the other at one instant, and charges according to their
-- charge modes.
--
-- KEYS    the counters of the checks, in order, each followed by the hash of its holds if the limit
--   keeps them; a key may occur again in another request. For a Cluster node that is known to refuse
--   the keys of other nodes (see `foreign_slots.rs`), keys of other slots than the first one's come
--   after ARGV[3] instead: the node refuses foreign keys one by one, and the request is passed on.
-- ARGV[1] and ARGV[2] as in ../begin.lua.
-- ARGV[3] the requests. A single check that decides alone: algorithm (1), plus 64 if entries are
--   recorded, plus 128 if the limit keeps holds, writes (1), hits, or the cost of a commit (4); the
--   entries to record if there are any: their length (4), their number (1), then each with a length
--   prefix (2); the fields of holds.lua if the limit keeps them; the algorithm's parameters.
--   Otherwise: 0 (1), prior (1: 0 open, 1 denied, 2 admitted; plus 4 if other slots judge the rest,
--   none of whose checks is of a limit that keeps holds; plus 8 if checks name the same counter, none
--   of which records or is of such a limit), checks (4), and for each: algorithm (1),
--   writes if the request is admitted (1), writes if it is not (1), role (1: 0 enforce, 1 none, 2
--   quota, 3 quota in shadow), and from the hits on as above.
-- Reply   for each request: 2, passed on; or 5 and for each check: verdict (1: 1 allowed, 2 denied;
--   plus 8 if written, plus 16 if from a grant, plus 64 if the fields of holds.lua follow), remaining
--   hits (5; negative if a fixed window of one period counts more than its limit), window (1),
--   reset_after us (7), if denied retry_after us (7, 2^55 if absent). If other slots judge the rest and it was admitted here, 6
--   instead of 5, and after each check the same fields again for the counter without the hits that
--   only an admitted request is charged; the instant of the charge, or of its grant (7); the value
--   without such a charge with a length prefix (2: 0 if there is none, 65535 if it is too long to
--   return).
local declared, size, byte = #KEYS, #text, string.byte
local least_ms = renews and tonumber(ARGV[2]) or 1
local PASSED_ON, JUDGED, PARTLY = '\2', '\5', '\6'
-- Flags of a check of a limit that keeps holds, and of one with entries to record.
local HOLDS, RECORDS = 128, 64

-- Number of replies, number of keys of previous checks, and position of the next request.
local replied, before, place = 0, 0, 1

-- Times to live in milliseconds, as text. Cached, since formatting a number for each call is slow.
local texts = {}

-- Writes a value to its key. Returns the error, if any.
local function save(key, new, lives_until)
  if not lives_until then
    return call('SET', key, new, 'KEEPTTL').err
  end
  local ms = max(math.ceil((max(lives_until - now, 0) + GRACE) / 1000), least_ms)
  local as_text = texts[ms]
  if not as_text then
    as_text = string.format('%.0f', ms)
    texts[ms] = as_text
  end
  return call('SET', key, new, 'PX', as_text).err
end

-- Decides requests of several checks, and parts of requests. Created only if there is one.
local function several()
  local ENFORCE, QUOTA, REPEATS = 0, 2, 8
  local NOT_KNOWN, LONGEST_VALUE = 65535, 4096
  -- For each check: its key, the stored value, the value to write, the time until which it
  -- matters, the reply, the instant; or what judge_hold found; and for the case that the request is
  -- not admitted, the value to write, the time until which it matters, and the reply.
  local keys, values, news, lives, said, instants = {}, {}, {}, {}, {}, {}
  local other_news, other_lives, other_said = {}, {}, {}
  local hold_keys, held = {}, {}

  local function next_key()
    before = before + 1
    return KEYS[before] or ARGV[3 + before - declared]
  end

  -- Judges as judges[algorithm] does, or with what is beside a state or will be, as beside.lua does.
  local function judge(algorithm, at, value, hits, writes, entries)
    if entries or value and #value > 0 and byte(value) >= WITH_DATA then
      return beside().judge(algorithm, at, value, hits, writes, entries)
    end
    return judges[algorithm](at, value, hits, writes)
  end

  -- Judges the checks of a request as one that is admitted or not. Returns true if all could be
  -- judged, the position after them, true if an enforcing check denies, true if all votes deny,
  -- and true if the written values depend on the rest of the request. Reads the counters if
  -- is_admitted, which comes first.
  local function look(count, at, is_admitted, news, lives, said)
    local known, depends, denied, votes, passes = true, false, false, false, false
    for i = 1, count do
      local algorithm, admitted, otherwise, role, hits
      algorithm, admitted, otherwise, role, hits, at = unpack_from('>BBBBI4', text, at)
      depends = depends or admitted ~= otherwise
      local writes, has_hold = is_admitted and admitted or otherwise, algorithm >= HOLDS
      local own, entries
      if is_admitted then
        keys[i] = next_key()
        hold_keys[i] = has_hold and next_key()
        values[i] = not has_hold and call('GET', keys[i])
      end
      if algorithm >= RECORDS and not has_hold then
        algorithm, entries, at = algorithm - RECORDS, at + 4, at + 4 + unpack_from('>I4', text, at)
      end
      local instant, allowed, new, lives_until, left, reset, retry, window, wrote, effect, of_hold, cost
      if has_hold then
        local verdict, id, record, added
        at, verdict, left, window, reset, retry, effect, of_hold, cost, new, lives_until, id, record, added =
          judge_hold(algorithm - HOLDS, at, hits, writes, keys[i], hold_keys[i])
        if verdict then
          instant, allowed = now, not retry
          wrote = verdict - (retry and 2 or 1)
          own = keep_hold(new, lives_until, id, record, added)
        end
      else
        at, instant, allowed, new, lives_until, left, reset, retry, window, wrote =
          judge(algorithm, at, values[i], hits, writes, entries)
        wrote = wrote or new and 8 or 0
      end
      news[i], lives[i], held[i] = new, lives_until, own or false
      if is_admitted then
        instants[i] = instant
      end
      if not instant then
        known = false
      elseif allowed then
        said[i] = pack('>BI5BI7', wrote + 1, left, window, reset)
        passes = passes or role >= QUOTA
      else
        said[i] = pack('>BI5BI7I7', wrote + 2, left, window, reset, retry)
        denied, votes, passes = denied or role == ENFORCE, votes or role == QUOTA, passes or role > QUOTA
      end
      if own then
        said[i] = said[i] .. pack('>BI4I4', effect, of_hold, cost)
      end
    end
    return known, at, denied, votes and not passes, depends
  end

  -- Writes the values of a request. If a key cannot be written, restores the previous ones and
  -- returns false: the request is passed on with nothing written. Hashes of holds come first: a user
  -- may lack the right for HSET alone.
  local function write(count)
    for i = 1, count do
      local own = held[i]
      if own and own.has_hash and not write_kept(save, own) then
        return false
      end
    end
    for i = 1, count do
      local own = held[i]
      if news[i] and not (own and own.has_hash) and save(keys[i], news[i], lives[i]) then
        for j = 1, i - 1 do
          local other = held[j]
          local value = values[j] or other and other.value
          if news[j] and not (other and other.has_hash) then
            if value then
              call('SET', keys[j], value, 'KEEPTTL')
            else
              call('DEL', keys[j])
            end
          end
        end
        return false
      end
    end
    return true
  end

  -- Adds the fields for the case that the request is not admitted.
  local function add_alternatives(count)
    for i = 1, count do
      local value = news[i] and not other_news[i] and values[i] or ''
      local length = #value
      if length > LONGEST_VALUE then
        value, length = '', NOT_KNOWN
      end
      said[i] = said[i] .. other_said[i] .. pack('>I7I2', instants[i], length) .. value
    end
  end

  -- Judges the checks of a request that may name the same counter, each by a draft of the counter
  -- with the hits of those before it; then writes their hits in order, and reports on what is left.
  -- Returns true if all could be judged, and the position after them.
  local function look_in_turn(prior, count, at)
    local known, denied, votes, passes = true, false, false, false
    local checks, states = {}, {}
    for i = 1, count do
      local check, key = {}, next_key()
      local state = states[key]
      keys[i], values[i], news[i], lives[i], held[i] = key, false, nil, nil, false
      if not state then
        values[i] = call('GET', key)
        state = { first = i, value = values[i], draft = values[i], hits = 0 }
        states[key] = state
      end
      check.algorithm, check.admitted, check.otherwise, check.role, check.hits, check.at = unpack_from('>BBBBI4', text, at)
      local instant, allowed, new
      at, instant, allowed, new = judge(check.algorithm, check.at, state.draft, check.hits, check.admitted)
      known = known and instant
      check.state, check.allowed, check.wanted = state, allowed, state.hits + check.hits
      state.draft = new or state.draft
      if check.admitted > 0 and check.admitted <= BOTH then
        state.hits = check.wanted
      end
      local role = check.role
      if allowed then
        passes = passes or role >= QUOTA
      else
        denied, votes, passes = denied or role == ENFORCE, votes or role == QUOTA, passes or role > QUOTA
      end
      checks[i] = check
    end
    local is_admitted = prior == 2 or prior == 0 and not denied and (passes or not votes)
    for i = 1, known and count or 0 do
      local check = checks[i]
      local state, writes = check.state, is_admitted and check.admitted or check.otherwise
      if writes == BOTH or check.allowed and writes == 1 or not check.allowed and writes == 2 then
        writes = BOTH
      elseif writes ~= REFUND then
        writes = 0
      end
      local _, _, _, new, lives_until = judge(check.algorithm, check.at, state.value, check.hits, writes)
      if new then
        state.value, news[state.first], lives[state.first] = new, new, lives_until or lives[state.first]
      end
    end
    for i = 1, known and count or 0 do
      local check = checks[i]
      local hits, mode = 0, REFUND
      if not check.allowed then
        hits, mode = check.wanted, DENIED_REPORT
      end
      local _, _, _, _, _, left, reset, retry, window = judge(check.algorithm, check.at, check.state.value, hits, mode)
      if check.allowed then
        said[i] = pack('>BI5BI7', 1, left, window, reset)
      else
        said[i] = pack('>BI5BI7I7', 2, left, window, reset, retry)
      end
    end
    return known, at
  end

  return function(prior, count, at)
    local known, has_alternatives = false, false
    if prior >= REPEATS then
      known, place = look_in_turn(prior - REPEATS, count, at)
    else
      local is_partial = prior >= 4
      prior = prior % 4
      local denied, outvoted, depends
      known, place, denied, outvoted, depends = look(count, at, true, news, lives, said)
      local is_admitted = prior == 2 or prior == 0 and not denied and (is_partial or not outvoted)
      has_alternatives = is_admitted and is_partial
      if known and has_alternatives then
        known = look(count, at, false, other_news, other_lives, other_said)
      elseif known and depends and not is_admitted then
        known = look(count, at, false, news, lives, said)
      end
    end
    if not (known and write(count)) then
      reply[replied] = PASSED_ON
      return
    end
    if has_alternatives then
      add_alternatives(count)
      reply[replied] = PARTLY
    else
      reply[replied] = JUDGED
    end
    for i = 1, count do
      reply[replied + i] = said[i]
    end
    replied = replied + count
  end
end

local decide_several

while place <= size do
  local algorithm, writes, hits, at = unpack_from('>BBI4', text, place)
  replied = replied + 1
  if algorithm == 0 then
    decide_several = decide_several or several()
    decide_several(writes, hits, at)
  elseif algorithm < HOLDS then
    before = before + 1
    local key = KEYS[before] or ARGV[3 + before - declared]
    local value = call('GET', key)
    local instant, allowed, new, lives_until, left, reset, retry, window, wrote
    if algorithm < RECORDS then
      place, instant, allowed, new, lives_until, left, reset, retry, window = judges[algorithm](at, value, hits, writes)
      wrote = new and 8 or 0
    end
    if not instant and (algorithm >= RECORDS or value and #value > 0 and byte(value) >= WITH_DATA) then
      local entries
      if algorithm >= RECORDS then
        algorithm, entries, at = algorithm - RECORDS, at + 4, at + 4 + unpack_from('>I4', text, at)
      end
      place, instant, allowed, new, lives_until, left, reset, retry, window, wrote =
        beside().judge(algorithm, at, value, hits, writes, entries)
    end
    if not instant or new and save(key, new, lives_until) then
      reply[replied] = PASSED_ON
    elseif allowed then
      reply[replied] = pack('>BBI5BI7', 5, wrote + 1, left, window, reset)
    else
      reply[replied] = pack('>BBI5BI7I7', 5, wrote + 2, left, window, reset, retry)
    end
  else
    local key, hold_key = KEYS[before + 1] or ARGV[4 + before - declared], KEYS[before + 2] or ARGV[5 + before - declared]
    before = before + 2
    local verdict, left, window, reset, retry, effect, held, cost, new, lives_until, id, record, added
    place, verdict, left, window, reset, retry, effect, held, cost, new, lives_until, id, record, added =
      judge_hold(algorithm - HOLDS, at, hits, writes, key, hold_key)
    if not verdict or not write_hold(save, new, lives_until, id, record, added) then
      reply[replied] = PASSED_ON
    elseif retry then
      reply[replied] = pack('>BBI5BI7I7BI4I4', 5, verdict, left, window, reset, retry, effect, held, cost)
    else
      reply[replied] = pack('>BBI5BI7BI4I4', 5, verdict, left, window, reset, effect, held, cost)
    end
  end
end
return table.concat(reply)
