-- in_turn: requests whose checks may name the same counter. The same steps as
-- crates/core/src/algorithm/judge/repeats.rs.
--
-- Created only if there is such a request. The arguments are of several.lua. A state of a counter
-- is what holds.lua keeps of it, or a table with its value, the new value and the time until which
-- it matters.
local function in_turn(r, next_key, count_vote, is_admitted)
  local CONCURRENCY, RESERVE, COMMIT, SETTLE, RESERVE_ONCE = 6, 1, 2, 3, 7
  local NOTHING, COMMITTED, SETTLED, HELD, CONFLICT = 0, 4, 6, 9, 10

  -- Writes a check by the state of its counter. Returns true if it is allowed, nil if that is
  -- unknown; the new state; how the hits were written, and the effect on a hold with its two
  -- amounts of hits.
  local function perform(check, state, writes)
    if check.has_hold then
      local own = holds.more().copy(state)
      local _, verdict, left, _, _, _, effect, held, cost, new, lives_until, id, record =
        holds.judge(own, check.algorithm, check.at, check.hits, writes, check.entries, true)
      if not verdict then
        r.later = r.later or left
        return nil, state
      end
      if new then
        own = holds.more().after(own, new, id, record)
        own.lives_until = lives_until or state.lives_until
      end
      return verdict % WRITTEN == ALLOWED, new and own or state, verdict % WITH_EFFECT - verdict % WRITTEN, effect, held, cost
    end
    local _, instant, allowed, new, lives_until, _, _, _, _, wrote =
      judged(check.algorithm, check.at, state.value, check.hits, writes)
    if not instant then
      r.later = r.later or allowed
      return nil, state
    elseif new then
      state = { value = new, lives_until = lives_until or state.lives_until, written_at = instant }
    end
    return allowed, state, wrote
  end

  -- Returns what a charge mode writes of a check with this verdict: BOTH, REFUND or 0.
  local function resolved(writes, allowed)
    if writes == BOTH or writes == (allowed and 1 or 2) then
      return BOTH
    end
    return writes == REFUND and REFUND or 0
  end

  -- Reads the checks of a request and their counters. Returns them, and the position after them.
  local function read(count, at)
    local checks, counters, _ = {}, {}, nil
    for i = 1, count do
      local algorithm, admitted, otherwise, role, hits, entries
      algorithm, admitted, otherwise, role, hits, at = unpack_from('>BBBBI4', text, at)
      local key, has_hold = next_key(), algorithm >= HOLDS
      algorithm = has_hold and algorithm - HOLDS or algorithm
      if algorithm >= RECORDS then
        algorithm, entries, at = algorithm - RECORDS, at + 4, at + 4 + unpack_from('>I4', text, at)
      end
      local hold_key, operation, id, parameters = has_hold and next_key(), nil, nil, at
      if has_hold then
        operation, _, _, id, parameters = unpack_from('>BI7BBc0', text, at)
      end
      -- These have no effect if the request has ended a hold of its ID before.
      local is_once = operation == COMMIT or operation == SETTLE
      local end_of = is_once and key .. id
      local counter, after = counters[key], judges[algorithm](parameters, false, 0, 0)
      if not counter then
        counter = { first = i, has_hold = has_hold, hits = 0, reserves = false, state = false }
        if hold_key then
          counter.state = holds.load(algorithm, key, hold_key)
        else
          counter.state = { value = call('GET', key), written_at = now }
        end
        if counter.state and hold_key then
          counter.state.changed = {}
        end
        counters[key] = counter
      end
      if operation == RESERVE_ONCE then
        counter.reserves = counter.reserves or {}
        counter.reserves[id] = (counter.reserves[id] or 0) + hits
      end
      r.keys[i], r.values[i], r.news[i], r.kept[i] = key, counter.state and counter.state.value, false, false
      r.instants[i], r.charged[i], r.befores[i], r.afters[i] = false, false, false, false
      -- A constructor of more than 16 fields makes room for 32, which is enough for a check: a
      -- table that grows costs more.
      checks[i] = {
        key = key, algorithm = algorithm, admitted = admitted, otherwise = otherwise, role = role, hits = hits,
        has_hold = has_hold, entries = entries, at = at, parameters = parameters, operation = operation, id = id,
        end_of = end_of, is_on_existing = operation and operation > RESERVE and operation ~= RESERVE_ONCE,
        after = after, counter = counter, known = false, seen_writes = (role - role % 16) / 16,
      }
      at = after
    end
    return checks, at
  end

  -- Judges the checks of a request, each by a draft of its counter with the hits of those before
  -- it.
  local function look_in_turn(checks)
    local drafts, ended = {}, {}
    for _, check in ipairs(checks) do
      local counter = check.counter
      local state = drafts[counter] or counter.state
      if check.end_of and ended[check.end_of] then
        check.allowed = true
      elseif state then
        local open = check.operation == RESERVE_ONCE
          and holds.more().open_hits(counter.state, check.algorithm, check.parameters, check.id) or 0
        if open > 0 then
          check.allowed = open == counter.reserves[check.id]
          check.known = check.allowed and HELD or CONFLICT
          r.conflicts = r.conflicts or not check.allowed
        else
          local writes = check.seen_writes > 0 and check.seen_writes or check.admitted
          check.drafted_from = state
          local effect
          check.allowed, drafts[counter], check.draft_wrote, effect, check.draft_held, check.draft_cost =
            perform(check, state, writes)
          check.draft, check.draft_effect = drafts[counter], effect
          if effect == COMMITTED or effect == SETTLED then
            ended[check.key .. check.id] = true
          end
        end
      end
      check.wanted = counter.hits + check.hits
      if check.seen_writes > 0 or check.admitted > 0 and check.admitted <= BOTH then
        counter.hits = check.wanted
      end
      check.verdict = check.allowed and ALLOWED or check.allowed == false and DENIED or UNREADABLE
      r.unreadable = r.unreadable or check.allowed == nil
      if r.lost[counter.first] and check.allowed then
        check.verdict, check.allowed = r.lost[counter.first], nil
      end
      count_vote(check.admitted, check.role, check.allowed)
    end
  end

  -- Writes the hits of the checks in order to the states of their counters. Returns these.
  local function settle(checks, admits)
    local states, ended = {}, {}
    for i, check in ipairs(checks) do
      local counter, allowed, writes = check.counter, check.allowed, admits and check.admitted or check.otherwise
      local state = states[counter] or counter.state
      check.effect, check.wrote, check.held, check.cost = check.known or NOTHING, 0, 0, 0
      writes = resolved(writes, allowed)
      if allowed ~= nil and not r.lost[counter.first] and not check.known and not (check.end_of and ended[check.end_of]) then
        if writes ~= 0 then
          -- A charge mode writes as in the draft, or nothing.
          if check.drafted_from == state then
            state, check.wrote = check.draft, check.draft_wrote
            check.effect, check.held, check.cost = check.draft_effect, check.draft_held, check.draft_cost
          else
            local _
            _, state, check.wrote, check.effect, check.held, check.cost = perform(check, state, writes)
          end
          if check.effect == COMMITTED or check.effect == SETTLED then
            ended[check.key .. check.id] = true
          end
          r.instants[i], r.charged[i] = state.written_at, check.has_hold and check.wrote ~= 0 and state
        end
        local charged, refused_hits = check.wrote ~= 0 and check.hits or 0, allowed and 0 or check.hits
        if check.entries and not check.is_on_existing and charged + refused_hits > 0 then
          local value = state.value or beside().unused(check.algorithm, check.parameters)
          value = beside().with_hits(value, check.entries, charged, refused_hits)
          state = check.has_hold and holds.more().copy(state, value)
            or { value = value, lives_until = state.lives_until, written_at = state.written_at }
        end
      end
      states[counter] = state
    end
    return states
  end

  -- Sets the replies of the checks of a request, by the states of their counters after it. Allowed
  -- checks of one counter have one report.
  local function report(checks, states, said)
    permit_operation, permit_id, renews = 0, '', true
    local reports = {}
    for i, check in ipairs(checks) do
      local state, verdict = states[check.counter], check.verdict
      local left, window, reset, retry, effect = 0, 0, 0, nil, ''
      if verdict == ALLOWED or verdict == DENIED then
        local hits, mode, of = 0, REFUND, string.sub(text, check.parameters, check.after - 1)
        local known = reports[check.counter]
        if verdict == DENIED then
          hits, mode, known = check.wanted, DENIED_REPORT, nil
        end
        if known and known.of == of then
          left, window, reset = known.left, known.window, known.reset
        else
          local _, lives_until
          _, _, _, _, lives_until, left, reset, retry, window =
            judged(check.algorithm, check.parameters, state.value, hits, mode)
          state.lives_until = state.lives_until or lives_until
          if verdict == ALLOWED then
            reports[check.counter] = { of = of, left = left, window = window, reset = reset }
          end
        end
        verdict = verdict + check.wrote
        if check.has_hold then
          verdict, effect = verdict + WITH_EFFECT, pack('>BI4I4', check.effect, check.held, check.cost)
        end
      end
      said[i] = pack('>BI5BI7', verdict, left, window, reset) .. (verdict % WRITTEN == DENIED and pack('>I7', retry) or '') .. effect
    end
  end

  -- Decides a request whose checks may name the same counter, one by one. Returns the position
  -- after it, and true if the reply has both cases.
  local function decide_in_turn(prior, is_partial, count, at)
    renews = true
    local checks, after = read(count, at)
    look_in_turn(checks)
    local admits = is_admitted(prior, is_partial)
    local has_both = admits and (is_partial or r.open)
    local others
    if has_both then
      others = settle(checks, false)
      report(checks, others, r.other_said)
    end
    local states = settle(checks, admits)
    report(checks, states, r.said)
    for i, check in ipairs(has_both and checks or {}) do
      local state, other, own = states[check.counter], others[check.counter], r.charged[i]
      if state and check.allowed ~= nil then
        r.befores[i], r.afters[i] = other.value or '', beside().bare(state.value or '')
      end
      if own then
        local has_record = check.id ~= '' and check.algorithm ~= CONCURRENCY and (own.kept or not own.is_stale)
        local stored = has_record and holds.more().stored_record(own, check.id) or ''
        local before = other.changed[check.id]
        own.old_head = other.since and other.value and holds.head_of(other, other.value) or ''
        own.old_record = before == nil and stored or before or ''
        r.afters[i] = holds.more().state(state, state.value or '', state.changed[check.id] or stored)
      end
    end
    for counter, state in pairs(states) do
      if state ~= counter.state then
        local i = counter.first
        r.news[i], r.lives[i], r.kept[i] = state.value, state.lives_until, counter.has_hold and state
      end
    end
    renews = renews_always
    return after, has_both
  end

  return decide_in_turn
end
