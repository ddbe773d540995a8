-- several: requests of several checks, and parts of requests. The same steps as
-- crates/core/src/algorithm/judge.rs.
--
-- Created only if there is such a request. Of each check: its key, the stored value, the value to
-- write, the time until which it matters, its counter if that has holds. `r` has these, and what
-- few requests need: the reply of a check for the case that the request is not admitted; the
-- instant of the charge, and its counter if that has holds; the verdict if it could not be written;
-- the value without the charge, if that is known; the value with it, followed by the record of a
-- hold, if checks name a counter twice; the replies of such checks. What is absent is false: a
-- table in which a key gets nil is built anew.
local function several()
  local ENFORCE, QUOTA = 0, 2
  -- Values of on_store_error.
  local ERROR, DENY, LOCAL = 0, 2, 3
  local CONFLICT = 10
  -- Longer values are not returned.
  local LONGEST_VALUE = 4096
  -- Room for a few checks, since a table that grows costs more.
  local keys, values, news, lives = { 0, 0, 0, 0 }, { 0, 0, 0, 0 }, { 0, 0, 0, 0 }, { 0, 0, 0, 0 }
  local kept = { false, false, false, false }
  local r = {
    keys = keys, values = values, news = news, lives = lives, kept = kept, said = {}, other_said = {}, instants = {},
    charged = {}, lost = {}, befores = {}, afters = {}, denied = false, fails = false, presumed = false, open = false,
    conflicts = false, votes = false, passes = false, later = false, unreadable = false,
  }
  -- Set if `r` has more than the values of a request.
  local is_rare = false
  local functions

  -- Returns what only rare requests need, created at its first use.
  local function more()
    if functions then
      return functions
    end
    functions = { is_admitted = 0, look_at = 0, lose = 0, add_alternatives = 0, forget = 0, decide_in_turn = 0 }

    local function next_key()
      before = before + 1
      return KEYS[before] or ARGV[3 + before - declared]
    end

    -- Counts the vote of a check: true if it is allowed, nil if that is unknown. A refund has a
    -- vote only if it fails.
    local function count_vote(admitted, role, allowed)
      if allowed ~= nil and admitted == REFUND then
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

    -- Returns true if the votes admit the request. Votes of other slots are unknown, so votes alone
    -- do not deny a part of a request.
    function functions.is_admitted(prior, is_partial)
      if prior == 1 or r.conflicts or prior == 0 and r.denied or r.fails then
        return false
      end
      return prior == 2 or not (r.presumed or r.votes and not r.passes and not is_partial)
    end

    -- Judges check `i` of a request, whose value is read, by anything that `look` does not judge
    -- itself: with a hold, entries to record, data next to its value, or a value that could not be
    -- written. Returns the position after it, and the reply.
    function functions.look_at(i, algorithm, admitted, writes, role, hits, at, is_first, is_final)
      local has_hold, entries = algorithm >= HOLDS, nil
      algorithm = has_hold and algorithm - HOLDS or algorithm
      if algorithm >= RECORDS then
        algorithm, entries, at = algorithm - RECORDS, at + 4, at + 4 + unpack_from('>I4', text, at)
      end
      local verdict, instant, allowed, new, lives_until, left, reset, retry, window, wrote, effect, held, cost, own
      if has_hold then
        if is_first then
          kept[i] = { hold_key = next_key() }
        end
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
      elseif r.lost[i] then
        new = nil
        if allowed then
          verdict, allowed, left, window, reset, effect = r.lost[i], nil, 0, 0, 0, nil
        else
          verdict = DENIED + (has_hold and WITH_EFFECT or 0)
        end
      end
      is_rare = true
      count_vote(admitted, role, allowed)
      if is_final then
        -- An unreadable counter still has a key for its holds, for the case that this is judged
        -- again.
        news[i], lives[i], kept[i] = new or false, lives_until or false, own or kept[i]
        if wrote == OF_GRANT then
          r.instants[i] = instant
        end
      else
        r.charged[i], r.afters[i], r.befores[i] = kept[i], false, instant and not new and (values[i] or '')
        r.instants[i] = kept[i] and kept[i].written_at or r.instants[i] or instant
      end
      local reply
      if verdict % WRITTEN == DENIED then
        reply = pack('>BI5BI7I7', verdict, left, window, reset, retry)
      else
        reply = pack('>BI5BI7', verdict, left, window, reset)
      end
      return at, effect and reply .. pack('>BI4I4', effect, held, cost) or reply
    end

    -- Records that check `i` cannot be written. Returns false.
    function functions.lose(i, err)
      is_rare, r.lost[i], news[i] = true, failure(err), false
      return false
    end

    -- Adds to the replies of a request after number `replied` those for the case that it is not
    -- admitted, the instants, and what amend.lua needs to take the charges back, as defined there.
    function functions.add_alternatives(replied, count)
      for i = 1, count do
        local own, undo, value = r.charged[i], '', r.befores[i]
        if own then
          undo = holds.more().undo(own)
        end
        if value and #value <= LONGEST_VALUE then
          if own or r.afters[i] then
            local after = r.afters[i] or holds.more().state(own, own.new or '', own.record or '')
            undo = undo .. '\2' .. string.sub(redis.sha1hex(after), 1, 16) .. value
          else
            undo = '\1' .. value
          end
        end
        reply[replied + i] = reply[replied + i] .. r.other_said[i] .. pack('>I7I2c0', r.instants[i] or 0, #undo, undo)
      end
    end

    -- Forgets what `r` has of the request before.
    function functions.forget()
      r.lost, r.later, r.unreadable, r.instants = {}, false, false, {}
      r.denied, r.fails, r.presumed, r.open, r.conflicts, r.votes, r.passes = false, false, false, false, false, false, false
    end

    -- Requests whose checks name a counter twice.
    function functions.decide_in_turn(prior, is_partial, count, at)
      functions.decide_in_turn = in_turn(r, next_key, count_vote, functions.is_admitted)
      return functions.decide_in_turn(prior, is_partial, count, at)
    end
    return functions
  end

  -- Judges the checks of a request, each of another counter, as one that is admitted or not. Sets
  -- their replies after number `place` of `said`. Returns the position after them; true if
  -- admission makes a difference; and true if an enforced limit denies, a quota votes against, and
  -- a quota does not. Reads the counters if `is_first`.
  local function look(count, at, admits, is_first, is_final, said, place)
    local depends, denied, votes, passes, lost = false, false, false, false, is_rare and next(r.lost)
    for i = 1, count do
      local algorithm, admitted, otherwise, role, hits
      algorithm, admitted, otherwise, role, hits, at = unpack_from('>BBBBI4', text, at)
      depends = depends or admitted ~= otherwise
      local writes, value = admits and admitted or otherwise, nil
      if is_first then
        before = before + 1
        keys[i] = KEYS[before] or ARGV[3 + before - declared]
        value = algorithm < HOLDS and call('GET', keys[i])
        values[i], kept[i] = value, false
      else
        value = values[i]
      end
      local after, instant, allowed, new, lives_until, left, reset, retry, window
      if algorithm < RECORDS and not lost then
        after, instant, allowed, new, lives_until, left, reset, retry, window = judges[algorithm](at, value, hits, writes)
      end
      if not instant then
        at, said[place + i] = more().look_at(i, algorithm, admitted, writes, role, hits, at, is_first, is_final)
      else
        at = after
        if allowed then
          said[place + i] = pack('>BI5BI7', new and WRITTEN + ALLOWED or ALLOWED, left, window, reset)
          passes = passes or role % 4 >= QUOTA and admitted ~= REFUND
        else
          said[place + i] = pack('>BI5BI7I7', new and WRITTEN + DENIED or DENIED, left, window, reset, retry)
          role = role % 4
          if admitted ~= REFUND then
            denied, votes, passes = denied or role == ENFORCE, votes or role == QUOTA, passes or role > QUOTA
          end
        end
        if is_final then
          news[i], lives[i] = new or false, lives_until or false
        else
          r.charged[i], r.afters[i], r.befores[i] = false, false, not new and (value or '')
          r.instants[i] = r.instants[i] or instant
        end
      end
    end
    return at, depends, denied, votes, passes
  end

  -- Writes the values of a request. If any cannot be written, restores the others and returns
  -- false. Those with a hash of holds come last, since a user may lack the rights for hashes alone,
  -- and are not restored.
  local function write(count)
    local is_written, has_hashes = true, false
    for i = 1, count do
      local new = news[i]
      if new then
        if kept[i] and kept[i].since then
          has_hashes = true
        else
          local err = save(keys[i], new, lives[i])
          if err then
            is_written = more().lose(i, err)
          end
        end
      end
    end
    for i = 1, has_hashes and is_written and count or 0 do
      local own = kept[i]
      local err = news[i] and own and own.since
        and holds.write(own, own.new, own.lives_until, own.id, not own.changed and own.record)
      if err then
        is_written = more().lose(i, err)
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

  -- Judges the checks of a request, and sets their replies. Returns the position after it, and true
  -- if the replies need those for the case that it is not admitted.
  local function judge(replied, prior, is_partial, count, at)
    local place, depends, denied, votes, passes = look(count, at, true, true, true, reply, replied)
    local admits
    if is_rare then
      r.denied, r.votes, r.passes = r.denied or denied, r.votes or votes, r.passes or passes
      admits = more().is_admitted(prior, is_partial)
    else
      admits = prior == 2 or prior == 0 and not denied and (is_partial or passes or not votes)
    end
    if admits then
      if is_partial or is_rare and r.open then
        is_rare = true
        look(count, at, false, false, false, r.other_said, 0)
        return place, true
      end
    elseif depends then
      look(count, at, false, false, true, reply, replied)
    end
    return place, false
  end

  -- Decides a request whose checks begin at `at`, and sets its reply, which is number `replied`.
  -- Returns the number of the last reply, and the position after the request.
  return function(replied, prior, count, at)
    if is_rare then
      more().forget()
    end
    local repeats, is_partial = prior >= REPEATS, prior % REPEATS >= PARTIAL
    local first_key, place, has_both, is_written = before, nil, nil, nil
    prior, is_rare = prior % PARTIAL, repeats
    -- Again as long as a value cannot be written: the request is then decided without it.
    repeat
      if repeats then
        place, has_both = more().decide_in_turn(prior, is_partial, count, at)
      else
        place, has_both = judge(replied, prior, is_partial, count, at)
      end
      is_written = is_rare and (r.later or r.unreadable and before > declared) or write(count)
      if not is_written and before <= declared then
        local lost = r.lost
        more().forget()
        before, r.lost = first_key, lost
      end
    until is_written or before > declared
    if is_rare then
      if not is_written or r.later or r.unreadable and before > declared then
        for i = 1, count do
          reply[replied + i] = nil
        end
        reply[replied] = r.later and pack('>BI7I7', BEYOND, now, r.later) or AGAIN
        return replied, place
      end
      for i = 1, repeats and count or 0 do
        reply[replied + i] = r.said[i]
      end
      if has_both then
        more().add_alternatives(replied, count)
      end
    end
    reply[replied] = has_both and PARTLY or JUDGED
    return replied + count, place
  end
end
