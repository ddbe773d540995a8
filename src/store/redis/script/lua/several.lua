-- several: requests of several checks, and parts of requests. The same steps as
-- crates/core/src/algorithm/judge.rs.
--
-- Created only if there is such a request. Of a request, `r` has for each check: its key, the stored
-- value, the value to write, the time until which it matters, its counter if that has holds; the reply,
-- and that for the case that the request is not admitted; the instant of the charge, and its counter if
-- that has holds; the verdict if it could not be written; the value without the charge, if that is known;
-- the value with it, followed by the record of a hold, if checks name a counter twice.
local function several()
  local ENFORCE, QUOTA = 0, 2
  -- Values of on_store_error.
  local ERROR, DENY, LOCAL = 0, 2, 3
  local CONFLICT = 10
  -- Longer values are not returned.
  local LONGEST_VALUE = 4096
  -- Room for a few checks, since a table that grows costs more.
  local r = {
    keys = { 0, 0, 0, 0 }, values = { 0, 0, 0, 0 }, news = { 0, 0, 0, 0 }, lives = { 0, 0, 0, 0 },
    said = { 0, 0, 0, 0 }, kept = {}, other_said = {}, instants = {}, charged = {}, lost = {}, befores = {},
    afters = {}, denied = nil, fails = nil, presumed = nil, open = nil, conflicts = nil, votes = nil,
    passes = nil, later = nil, unreadable = nil,
  }
  local decide_in_turn

  local function next_key()
    before = before + 1
    return KEYS[before] or ARGV[3 + before - declared]
  end

  -- Counts the vote of a check: true if it is allowed, nil if that is unknown. One that enforces its
  -- limit changes nothing if it is allowed, and a refund has a vote only if it fails.
  local function count_vote(admitted, role, allowed)
    if allowed ~= nil and (admitted == REFUND or allowed and role % 4 == ENFORCE) then
      return
    end
    local on_error = allowed == nil and (role % 16 - role % 4) / 4
    role = role % 4
    if role == ENFORCE then
      r.denied, r.presumed = r.denied or allowed == false, r.presumed or on_error == DENY
    end
    if on_error and (role == ENFORCE or role == QUOTA) then
      r.fails, r.open = r.fails or on_error == ERROR, r.open or on_error == LOCAL
    end
    if role == QUOTA and (allowed == false or on_error == DENY) then
      r.votes = true
    elseif role >= QUOTA then
      r.passes = true
    end
  end

  -- Returns true if the votes admit the request. Votes of other slots are unknown, so votes alone do
  -- not deny a part of a request.
  local function is_admitted(prior, is_partial)
    if prior == 1 or r.conflicts or prior == 0 and r.denied or r.fails then
      return false
    end
    return prior == 2 or not (r.presumed or r.votes and not r.passes and not is_partial)
  end

  -- Judges the checks of a request, each of another counter, as one that is admitted or not. Returns
  -- the position after them, and true if that makes a difference. Reads the counters if `is_first`.
  local function look(count, at, admits, is_first, is_final, said)
    local keys, values, news, lives, kept, lost, depends = r.keys, r.values, r.news, r.lives, r.kept, r.lost, false
    for i = 1, count do
      local algorithm, admitted, otherwise, role, hits, entries
      algorithm, admitted, otherwise, role, hits, at = unpack_from('>BBBBI4', text, at)
      depends = depends or admitted ~= otherwise
      local writes, has_hold = admits and admitted or otherwise, algorithm >= HOLDS
      algorithm = has_hold and algorithm - HOLDS or algorithm
      if algorithm >= RECORDS then
        algorithm, entries, at = algorithm - RECORDS, at + 4, at + 4 + unpack_from('>I4', text, at)
      end
      if is_first then
        keys[i], kept[i] = next_key(), has_hold and { hold_key = next_key() }
        values[i] = not has_hold and call('GET', keys[i])
      end
      local verdict, instant, allowed, new, lives_until, left, reset, retry, window, wrote, effect, held, cost, own
      if has_hold then
        local id, record
        own = holds.load(algorithm, keys[i], kept[i].hold_key)
        values[i] = own and own.value
        at, verdict, left, window, reset, retry, effect, held, cost, new, lives_until, id, record =
          holds.judge(own, algorithm, at, hits, writes, entries)
        instant, allowed = verdict, verdict and verdict % WRITTEN == ALLOWED
        if verdict then
          own.new, own.lives_until, own.id, own.record = new, lives_until, id, record
          r.conflicts = r.conflicts or effect == CONFLICT
        end
      else
        at, instant, allowed, new, lives_until, left, reset, retry, window, wrote =
          judged(algorithm, at, values[i], hits, writes, entries)
        verdict = instant and wrote + (allowed and ALLOWED or DENIED)
      end
      if not instant then
        r.later = r.later or (has_hold and left or allowed)
        r.unreadable = r.unreadable or not r.later
        verdict, allowed, new, left, window, reset = UNREADABLE, nil, nil, 0, 0, 0
      elseif lost[i] then
        new = nil
        if allowed then
          verdict, allowed, left, window, reset = lost[i], nil, 0, 0, 0
        else
          verdict = DENIED + (verdict >= WITH_EFFECT and WITH_EFFECT or 0)
        end
      end
      count_vote(admitted, role, allowed)
      local reply
      if verdict % WRITTEN == DENIED then
        reply = pack('>BI5BI7I7', verdict, left, window, reset, retry)
      else
        reply = pack('>BI5BI7', verdict, left, window, reset)
      end
      said[i] = verdict >= WITH_EFFECT and reply .. pack('>BI4I4', effect, held, cost) or reply
      if is_final then
        -- An unreadable counter still has a key for its holds, for the case that this is judged again.
        news[i], lives[i], kept[i] = new, lives_until, own or kept[i]
        if wrote == OF_GRANT then
          r.instants[i] = instant
        end
      else
        r.charged[i], r.afters[i], r.befores[i] = kept[i], nil, instant and not new and (values[i] or '') or nil
        r.instants[i] = kept[i] and kept[i].written_at or r.instants[i] or instant
      end
    end
    return at, depends
  end

  -- Writes the values of a request. If any cannot be written, restores the others and returns false.
  -- Those with a hash of holds come last, since a user may lack the rights for hashes alone, and are not
  -- restored.
  local function write(count)
    local keys, values, news, lives, kept = r.keys, r.values, r.news, r.lives, r.kept
    local is_written, has_hashes = true, false
    for i = 1, count do
      if kept[i] and kept[i].since then
        has_hashes = true
      else
        local err = news[i] and save(keys[i], news[i], lives[i])
        if err then
          is_written, r.lost[i], news[i] = false, failure(err), nil
        end
      end
    end
    for i = 1, has_hashes and is_written and count or 0 do
      local own = kept[i]
      local err = news[i] and own and own.since
        and holds.write(own, own.new, own.lives_until, own.id, not own.changed and own.record)
      if err then
        is_written, r.lost[i], news[i] = false, failure(err), nil
      end
    end
    for i = 1, is_written and 0 or count do
      if news[i] and not (kept[i] and kept[i].since) then
        if values[i] then
          call('SET', keys[i], values[i], 'KEEPTTL')
        else
          call('DEL', keys[i])
        end
      end
    end
    return is_written
  end

  -- Returns what amend.lua needs to take back the charge of a check, as defined there.
  local function undo_of(i)
    local own, undo, value = r.charged[i], '', r.befores[i]
    if own then
      undo = holds.more().undo(own)
    end
    if not value or #value > LONGEST_VALUE then
      return undo
    elseif own or r.afters[i] then
      local after = r.afters[i] or holds.more().state(own, own.new or '', own.record or '')
      return undo .. '\2' .. string.sub(redis.sha1hex(after), 1, 16) .. value
    end
    return '\1' .. value
  end

  -- Decides a request whose checks begin at `at`, and sets its reply, which is number `replied`. Returns
  -- the number of the last reply, and the position after the request.
  return function(replied, prior, count, at)
    local first_key, repeats, has_both, place, depends = before, prior >= REPEATS, false, nil, nil
    local is_partial = prior % REPEATS >= PARTIAL
    prior = prior % PARTIAL
    if repeats then
      decide_in_turn = decide_in_turn or in_turn(r, next_key, count_vote, is_admitted)
    end
    r.lost, r.later, r.instants = {}, nil, {}
    -- Again as long as a value cannot be written: the request is then decided without it.
    repeat
      before, r.unreadable = first_key, false
      r.denied, r.fails, r.presumed, r.open, r.conflicts, r.votes, r.passes = nil, nil, nil, nil, nil, nil, nil
      if repeats then
        place, has_both = decide_in_turn(prior, is_partial, count, at)
      else
        place, depends = look(count, at, true, true, true, r.said)
        local admits = is_admitted(prior, is_partial)
        has_both = admits and (is_partial or r.open)
        if has_both then
          look(count, at, false, false, false, r.other_said)
        elseif depends and not admits then
          look(count, at, false, false, true, r.said)
        end
      end
      local is_written = r.later or r.unreadable and before > declared or write(count)
      r.unreadable = r.unreadable or not is_written
    until is_written or before > declared
    if r.later or r.unreadable and before > declared then
      reply[replied] = r.later and pack('>BI7I7', BEYOND, now, r.later) or AGAIN
      return replied, place
    end
    local said = r.said
    reply[replied] = has_both and PARTLY or JUDGED
    for i = 1, count do
      local one = said[i]
      if has_both then
        local undo = undo_of(i)
        one = one .. r.other_said[i] .. pack('>I7I2c0', r.instants[i] or 0, #undo, undo)
      end
      reply[replied + i] = one
    end
    return replied + count, place
  end
end
