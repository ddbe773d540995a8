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
  local ALLOWED, DENIED, WRITTEN, WITH_EFFECT = 1, 2, 8, 64
  local renews_always = renews
  -- Padding of heads, by length.
  local paddings = {}

  -- Of the current check: its keys, its value, the head's fields, the inserts before the next check of
  -- the records; the latest instant of the counter before it, the instant at which it is judged; the
  -- instant until which its keys live at least, and true if the hash needs another time to live.
  local key, hold_key, value, head, since, latest, marks, unchecked
  local last, instant, least, renews_hash

  -- Reads the counter and its head. Returns false if the check must be passed on. The reply to a
  -- command that fails is a table without elements, whose length is 0.
  local function load(algorithm)
    value, head = call('GET', key), call('HGET', hold_key, '')
    last, since, latest, marks, unchecked, instant = 0, nil, 0, '', 0, now
    if head then
      local size = value and #value or 0
      if #head < TABLE_BYTES or size < 12 then
        return false
      end
      -- A value of up to 24 bytes is its own first and last 24 bytes.
      local first, final = value, value
      if size > 24 then
        first, final, size = sub(value, 1, 24), sub(value, -24), 24
      end
      local format, length, count, place = byte(head, 1, 2)
      if format ~= FORMAT or length ~= 2 * size or sub(head, 3, size + 2) ~= first
        or first ~= final and sub(head, size + 3, length + 2) ~= final then
        return false
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
        return false
      elseif algorithm == GCRA then
        last = rates().read(value)
      else
        last = #value >= 12 and unpack_from('>I7', value, 2)
      end
      if not last then
        return false
      elseif last > now then
        instant = last
      end
    end
    return true
  end

  -- Lets a record matter until `expires`. The keys live until the next multiple of LIVES_BY at least,
  -- so a write that stays below it need not set their time to live.
  local function extend(expires)
    local before, after = latest > last and latest or last, instant
    if expires > latest then
      latest = expires
    end
    if latest > after then
      after = latest
    end
    renews_hash = renews_always or not since or before - before % LIVES_BY < after - after % LIVES_BY
    renews = renews_hash
    least = after - after % LIVES_BY + LIVES_BY
  end

  -- Puts a charge of `held` hits to `cost`, and sets the latest instant of the counter. Returns what
  -- a judge returns; no new value to pass the check on.
  local function correct(algorithm, at, held, cost, of_charge)
    local judge, hits, mode, own, new = judges[algorithm], 0, TOUCH
    if cost > held then
      hits, mode = cost - held, PAST
      if algorithm == GCRA then
        marks = marked.charged(at, value, instant, marks)
      end
    elseif cost < held and (algorithm ~= GCRA or since <= of_charge) then
      hits, mode, charged_at = held - cost, TAKE_BACK, of_charge
      if algorithm == GCRA then
        new, own = marked.take_back(at, value, instant, marks, hits)
        hits, mode = 0, TOUCH
        value, marks = new or value, new and own or marks
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
  local function ending(operation, hits, record, ttl, releases)
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
  local function finish(operation, hits, algorithm, at, ttl, releases, id)
    local record = head and call('HGET', hold_key, id)
    local charged_at, held, cost, expires, effect = ending(operation, hits, record, ttl, releases)
    if charged_at == nil then
      local after, is_read, _, _, _, left, reset, _, window = judges[algorithm](at, value, 0, REFUND)
      return after, is_read and WITH_EFFECT + ALLOWED, left, window, reset, nil, NOTHING, 0, 0
    elseif charged_at == false then
      return (judges[algorithm](at, false, 0, 0))
    end
    extend(expires)
    local after, _, _, new, lives_until, left, reset, _, window = correct(algorithm, at, held, cost, charged_at)
    renews = renews_always
    if effect ~= COMMITTED then
      held, cost = 0, 0
    end
    return after, new and WITH_EFFECT + WRITTEN + ALLOWED, left, window, reset, nil, effect, held, cost,
      new, lives_until, id, pack('>I7BB', expires, 1, 0), 0
  end

  -- Judges a charge, a peek or a refund, with or without an ID. Returns as judge_hold does.
  local function charge(operation, hits, algorithm, at, ttl, id, writes)
    local is_reserve, added, verdict, record = operation ~= NONE, 0, WITH_EFFECT
    extend(is_reserve and instant + ttl or 0)
    local after, is_read, allowed, new, lives_until, left, reset, retry, window =
      judges[algorithm](at, value, hits, writes)
    renews = renews_always
    if not is_read then
      return after
    elseif new then
      verdict = WITH_EFFECT + WRITTEN
      if algorithm == GCRA then
        marks = marked.charged(at, value, instant, marks)
      end
      if is_reserve then
        if not since then
          unchecked = UNCHECKED
        elseif unchecked == 0 or call('HGET', hold_key, id) then
          return after
        else
          unchecked = unchecked - 1
        end
        added, record = 1, pack('>I7BBI7I4', instant + ttl, 0, 1, instant, hits)
      end
      if not since and (is_reserve or algorithm == GCRA) then
        since, added = instant, added + 1
      end
    end
    return after, verdict + (allowed and ALLOWED or DENIED), left, window, reset, not allowed and retry,
      record and RESERVED or NOTHING, 0, 0, new, lives_until, id, record, added
  end

  -- Judges a check of slots, which are in the counter's value. Returns as judge_hold does.
  local function slots(operation, hits, at, id, ttl, writes)
    slot_operation, slot_id, slot_ttl, since, value = operation, id, ttl, nil, call('GET', key)
    local after, is_read, allowed, new, lives_until, left, reset, retry, _, taken =
      judges[CONCURRENCY](at, value, hits, writes)
    if not is_read or operation == RESERVE_ONCE and taken > 0 then
      return after
    end
    local effect = NOTHING
    if new and operation ~= NONE then
      effect = operation > RESERVE and operation ~= RESERVE_ONCE and SETTLED or taken > 0 and REPEATED or RESERVED
    end
    return after, WITH_EFFECT + (new and WRITTEN or 0) + (allowed and ALLOWED or DENIED), left, 0, reset,
      not allowed and retry, effect, 0, 0, new, lives_until
  end

  -- Judges the check at `at` of the text. Returns the position after it, and nothing else if it must
  -- be passed on. Otherwise: verdict, remaining hits, window, reset_after, retry_after if denied,
  -- effect, two amounts of hits, and what write_hold takes.
  judge_hold = function(algorithm, at, hits, writes, of_counter, of_holds)
    local operation, ttl, releases, id
    operation, ttl, releases, id, at = unpack_from('>BI7BBc0', text, at)
    key, hold_key = of_counter, of_holds
    if algorithm == CONCURRENCY then
      return slots(operation, hits, at, id, ttl, writes)
    end
    -- A reserve by an ID that may have open holds is judged by them first.
    if not load(algorithm) or operation == RESERVE_ONCE and head and call('HGET', hold_key, id) then
      return (judges[algorithm](at, false, 0, 0))
    elseif operation <= RESERVE or operation == RESERVE_ONCE then
      return charge(operation, hits, algorithm, at, ttl, id, writes)
    end
    return finish(operation, hits, algorithm, at, ttl, releases, id)
  end

  -- Writes the head and the record, if there is one, and then the value: a value without its head
  -- would be one of a limit without holds. `added` is the number of fields that the hash gets.
  -- Returns true if that succeeds, or if there is nothing to write.
  write_hold = function(save, new, lives_until, id, record, added)
    if not new then
      return true
    elseif not since then
      return not save(key, new, lives_until)
    end
    if lives_until and lives_until < least then
      lives_until = least
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
    local new_head = pack('>BBc0c0I7I7Bc0I4c0', FORMAT, 2 * size, first, final, since, latest,
      #marks / MARK_BYTES, marks, unchecked, padding)
    local answer
    if record then
      answer = call('HSET', hold_key, '', new_head, id, record)
    else
      answer = call('HSET', hold_key, '', new_head)
    end
    if answer ~= added then
      return false
    end
    if renews_hash then
      local ms = max(math.ceil((lives_until - now + GRACE) / 1000), tonumber(ARGV[2]))
      call('PEXPIRE', hold_key, string.format('%.0f', ms))
    end
    return not save(key, new, lives_until)
  end

  -- Returns what is known of the current check, and what write_hold takes, for write_kept.
  keep_hold = function(new, lives_until, id, record, added)
    return {
      key, hold_key, since, latest, marks, unchecked, least, renews_hash, new, lives_until, id, record, added,
      value = value, has_hash = new and since,
    }
  end

  -- Writes a check that was judged before others.
  write_kept = function(save, kept)
    local new, lives_until, id, record, added
    key, hold_key, since, latest, marks, unchecked, least, renews_hash, new, lives_until, id, record, added =
      unpack(kept, 1, 13)
    return write_hold(save, new, lives_until, id, record, added)
  end
end
