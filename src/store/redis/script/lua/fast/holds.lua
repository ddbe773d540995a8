-- holds: a check of a limit that keeps holds. The same steps as ../holds.lua, which also defines the
-- values of the keys, for what is frequent: a charge or a peek without an ID, a reserve by an ID that
-- has no record, a commit or a settle of the only hold of an ID or of none. The rest is passed on: a
-- head that is stale, a hash that is due for a check of its records, records with several holds, a
-- cost without a hold, hits to take back from a ledger.
--
-- KEYS    the counter, the hash of its holds.
-- Text    before the parameters of the algorithm: operation as in ../holds.lua (1), TTL us (7), 1 if a
--   settle releases (1), ID with a length prefix (1).
-- Reply   after that of any check, with 64 added to the verdict: effect (1), two amounts of hits (4, 4),
--   as in ../holds.lua.
do
  local byte, sub = string.byte, string.sub
  local FORMAT, TABLE_BYTES, MARK_BYTES = 1, 65, 18
  -- Records that a new hash takes before they are checked, as in ../holds.lua.
  local UNCHECKED = 32
  -- The keys live until multiples of this, in us, as in ../holds.lua.
  local LIVES_BY = 30000000
  local NONE, RESERVE, COMMIT, RESERVE_ONCE = 0, 1, 2, 7
  local NOTHING, RESERVED, REPEATED, COMMITTED, SETTLED = 0, 1, 2, 4, 6
  local GCRA, CONCURRENCY = 4, 6
  -- Position of the first hold in a record.
  local FIRST_HOLD = 10
  local WRITTEN, WITH_EFFECT = 8, 64
  local renews_always = renews
  -- Padding of heads, by length.
  local paddings = {}

  -- Reads a counter and its head. Returns nothing if the check must be passed on. The reply to a
  -- command that fails is a table without elements, whose length is 0.
  local function load(algorithm, key, hold_key)
    local value, head = call('GET', key), call('HGET', hold_key, '')
    local last, since, latest, marks, unchecked, instant = 0, nil, 0, '', 0, now
    if head then
      local size = value and #value or 0
      if #head < TABLE_BYTES or size < 12 then
        return nil
      end
      -- A value of up to 24 bytes is its own first and last 24 bytes.
      local first, final = value, value
      if size > 24 then
        first, final, size = sub(value, 1, 24), sub(value, -24), 24
      end
      local format, length, count, place = byte(head, 1, 2)
      if format ~= FORMAT or length ~= 2 * size or sub(head, 3, size + 2) ~= first
        or first ~= final and sub(head, size + 3, length + 2) ~= final then
        return nil
      end
      since, latest, count, place = unpack_from('>I7I7B', head, length + 3)
      if count > 0 then
        marks = sub(head, place, place + MARK_BYTES * count - 1)
        place = place + MARK_BYTES * count
      end
      if #head >= place + 3 then
        unchecked = unpack_from('>I4', head, place)
      end
    end
    if value then
      if type(value) == 'table' then
        return nil
      elseif algorithm == GCRA then
        last = rates().read(value)
      else
        last = #value >= 12 and unpack_from('>I7', value, 2)
      end
      if not last then
        return nil
      elseif last > now then
        instant = last
      end
    end
    return {
      key = key, hold_key = hold_key, value = value, has_head = head, last = last, instant = instant,
      since = since, latest = latest, marks = marks, unchecked = unchecked,
      verdict = WITH_EFFECT, effect = NOTHING, held = 0, cost = 0,
    }
  end

  -- Lets a record matter until `expires`. The keys live until the next multiple of LIVES_BY at least,
  -- so a write that stays below it need not set their time to live.
  local function extend(own, expires)
    local last, latest = own.last, own.latest
    local before, after = latest > last and latest or last, own.instant
    if expires > latest then
      latest, own.latest = expires, expires
    end
    if latest > after then
      after = latest
    end
    renews = renews_always or not own.since or before - before % LIVES_BY < after - after % LIVES_BY
    own.renews, own.least = renews, after - after % LIVES_BY + LIVES_BY
  end

  -- Puts a charge of `held` hits to `cost`, and sets the latest instant of the counter. Returns what
  -- a judge returns; no new value to pass the check on.
  local function correct(own, algorithm, at, held, cost, of_charge)
    local judge, value, hits, mode = judges[algorithm], own.value, 0, TOUCH
    if cost > held then
      hits, mode = cost - held, PAST
      if algorithm == GCRA then
        own.marks = marked.charged(at, value, own.instant, own.marks)
      end
    elseif cost < held and (algorithm ~= GCRA or own.since <= of_charge) then
      hits, mode, charged_at = held - cost, TAKE_BACK, of_charge
      if algorithm == GCRA then
        local new, marks = marked.take_back(at, value, own.instant, own.marks, hits)
        hits, mode = 0, TOUCH
        value, own.marks = new or value, new and marks or own.marks
      end
    end
    local after, is_read, allowed, changed, lives_until, left, reset, retry, window = judge(at, value, hits, mode)
    if is_read and not changed then
      -- Nothing of the charge is left.
      return judge(at, value, 0, TOUCH)
    end
    return after, is_read, allowed, changed, lives_until, left, reset, retry, window
  end

  -- Returns what a commit or a settle does: the instant of the charge, its hits, what they are put
  -- to, the new expiry of the record, the effect. Returns nil if there is nothing to end, and false
  -- to pass it on.
  local function ending(operation, instant, hits, record, ttl, releases)
    local expires, ended, count = 0, 0, 0
    if record then
      expires, ended, count = unpack_from('>I7BB', record)
    end
    if expires <= instant and operation == COMMIT or expires > instant and count > 1 then
      return false
    elseif expires <= instant or count == 0 then
      return nil
    end
    local charged_at, held = unpack_from('>I7I4', record, FIRST_HOLD)
    if operation == COMMIT then
      return charged_at, held, hits, instant + ttl, COMMITTED
    end
    return charged_at, held, releases == 1 and 0 or held, expires, SETTLED
  end

  -- Judges a commit or a settle. Returns as judge_hold does.
  local function finish(own, operation, hits, algorithm, at, ttl, releases, id)
    local record = own.has_head and call('HGET', own.hold_key, id)
    local charged_at, held, cost, expires, effect = ending(operation, own.instant, hits, record, ttl, releases)
    local after, _
    if charged_at == nil then
      after, own.allowed, _, _, _, own.left, own.reset, _, own.window = judges[algorithm](at, own.value, 0, REFUND)
      return after, own.allowed and own
    elseif charged_at == false then
      return (judges[algorithm](at, false, 0, 0))
    end
    extend(own, expires)
    after, own.allowed, _, own.new, own.lives_until, own.left, own.reset, _, own.window =
      correct(own, algorithm, at, held, cost, charged_at)
    own.id, own.record, own.added, own.effect = id, pack('>I7BB', expires, 1, 0), 0, effect
    own.verdict = WITH_EFFECT + WRITTEN
    if effect == COMMITTED then
      own.held, own.cost = held, cost
    end
    return after, own.new and own
  end

  -- Judges a charge, a peek or a refund, with or without an ID. Returns as judge_hold does.
  local function charge(own, operation, hits, algorithm, at, ttl, id, writes)
    local is_reserve, instant, after, is_read = operation ~= NONE, own.instant
    extend(own, is_reserve and instant + ttl or 0)
    after, is_read, own.allowed, own.new, own.lives_until, own.left, own.reset, own.retry, own.window =
      judges[algorithm](at, own.value, hits, writes)
    if not is_read then
      return after
    elseif own.new then
      own.verdict, own.added = WITH_EFFECT + WRITTEN, 0
      if algorithm == GCRA then
        own.marks = marked.charged(at, own.value, instant, own.marks)
      end
      if is_reserve then
        if not own.since then
          own.unchecked = UNCHECKED
        elseif own.unchecked == 0 or call('HGET', own.hold_key, id) then
          return after
        else
          own.unchecked = own.unchecked - 1
        end
        own.id, own.record, own.added = id, pack('>I7BBI7I4', instant + ttl, 0, 1, instant, hits), 1
        own.effect = RESERVED
      end
      if not own.since and (is_reserve or algorithm == GCRA) then
        own.since, own.added = instant, own.added + 1
      end
    end
    return after, own
  end

  -- Judges a check of slots, which are in the counter's value. Returns as judge_hold does.
  local function slots(operation, hits, at, key, id, ttl, writes)
    slot_operation, slot_id, slot_ttl = operation, id, ttl
    local after, is_read, allowed, new, lives_until, left, reset, retry, _, taken =
      judges[CONCURRENCY](at, call('GET', key), hits, writes)
    if not is_read or operation == RESERVE_ONCE and taken > 0 then
      return after
    end
    local effect = NOTHING
    if new and operation ~= NONE then
      effect = operation > RESERVE and operation ~= RESERVE_ONCE and SETTLED or taken > 0 and REPEATED or RESERVED
    end
    return after, {
      key = key, allowed = allowed, new = new, lives_until = lives_until, left = left, reset = reset,
      retry = retry, window = 0, verdict = WITH_EFFECT + (new and WRITTEN or 0), effect = effect,
      held = 0, cost = 0,
    }
  end

  -- Judges the check at `at` of the text. Returns the position after it, and nothing else if it must
  -- be passed on; otherwise what it found, with the fields of a judge's results, of the reply, and of
  -- what write_hold writes.
  judge_hold = function(algorithm, at, hits, writes, key, hold_key)
    local operation, ttl, releases, id
    operation, ttl, releases, id, at = unpack_from('>BI7BBc0', text, at)
    if algorithm == CONCURRENCY then
      return slots(operation, hits, at, key, id, ttl, writes)
    end
    local own, after, judged = load(algorithm, key, hold_key)
    -- A reserve by an ID that may have open holds is judged by them first.
    if not own or operation == RESERVE_ONCE and own.has_head and call('HGET', hold_key, id) then
      after = judges[algorithm](at, false, 0, 0)
    elseif operation <= RESERVE or operation == RESERVE_ONCE then
      after, judged = charge(own, operation, hits, algorithm, at, ttl, id, writes)
    else
      after, judged = finish(own, operation, hits, algorithm, at, ttl, releases, id)
    end
    renews = renews_always
    return after, judged
  end

  -- Writes the head and the record of a check, if it has one, and then the value: a value without its
  -- head would be one of a limit without holds. Returns true if that succeeds.
  write_hold = function(own, save)
    local new, lives_until, marks = own.new, own.lives_until, own.marks
    if not new then
      return true
    elseif not own.since then
      return not save(own.key, new, lives_until)
    end
    if lives_until and lives_until < own.least then
      lives_until = own.least
    end
    local size, first, final = #new, new, new
    if size > 24 then
      first, final, size = sub(new, 1, 24), sub(new, -24), 24
    end
    local padding = ''
    local short = TABLE_BYTES - 21 - 2 * size - #marks
    if short > 0 then
      padding = paddings[short] or string.rep('\0', short)
      paddings[short] = padding
    end
    local head = pack('>BBc0c0I7I7Bc0I4c0', FORMAT, 2 * size, first, final, own.since, own.latest,
      #marks / MARK_BYTES, marks, own.unchecked, padding)
    local answer
    if own.record then
      answer = call('HSET', own.hold_key, '', head, own.id, own.record)
    else
      answer = call('HSET', own.hold_key, '', head)
    end
    if answer ~= own.added then
      return false
    end
    if own.renews then
      local ms = max(math.ceil((lives_until - now + GRACE) / 1000), tonumber(ARGV[2]))
      call('PEXPIRE', own.hold_key, string.format('%.0f', ms))
    end
    return not save(own.key, new, lives_until)
  end
end
