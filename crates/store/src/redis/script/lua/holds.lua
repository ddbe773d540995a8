-- holds: checks of limits that keep holds: charges that are remembered by an ID, next to the value
-- of a counter. The same steps as crates/core/src/algorithm/hold and marks.rs.
--
-- Key     a hash next to the counter's key, in the same slot. The field '' is the head: format (1),
--   the first and the last 24 bytes of the counter's value with a length prefix (1), the instant
--   since which the marks are complete (7), the latest expiry of a record (7), marks (1), then each
--   with instant (7) and backlog (7, 4), inserts before the next check of the records (4), and
--   padding to 65 bytes, with which Redis keeps the hash as a table. Another field is the record of
--   an ID: expiry (7), 1 if a hold of it has ended (1), receipts (1), each with instant (7) and
--   hits (4); as read also 2 in the flag and, after the receipts, what each has besides: instant of
--   the grant from which its hits are, or 0 (7), and the entries to whose tallies they are counted,
--   as in decide.lua, with a length prefix (2). Such a record is stored twice: in the field of its
--   ID without that and without hits of grants, as releases before 0.2.0 read it, and as a whole
--   in a field of 129 bytes (length of the ID, ID, padding). If the value is not the one of the head, the counter was written under a limit
--   without holds: marks do not count, and records do unless it was a reset.
-- Text    before the parameters of the algorithm: operation (1: 0 none, 1 reserve, 2 commit, 3
--   settle, 4 cancel, 5 extend, 6 read, 7 reserve unless the ID has open holds, 8 commit for each
--   check of the request), TTL us (7), 1 if a settle releases (1), ID with a length prefix (1). The
--   hits are the cost of a commit.
-- Reply   after that of any check, with 64 added to the verdict: effect (1: 0 none, 1 reserved, 2
--   reserved by an ID with open holds, 3 charged without a record, 4 committed, 5 a cost without a
--   hold, 6 settled, 7 extended, 8 open, 9 held already, 10 in conflict with other holds of the
--   ID), two amounts of hits (4, 4).
--
-- A counter that was loaded is a table: its keys, `value`; `since`, `latest`, `marks` and
-- `unchecked` of the head, `is_stale` if the head is of another value, and `kept`, the latest expiry
-- of its records if they count; `last`, the latest instant before the check, and `instant`, that of the check; under gcra `whole` and `part`, the backlog at
-- that instant, and `amount`, the limit that it is based on, unless it is to be read; `least`,
-- until which the keys live at least, and `renews` if the hash needs another time to live;
-- `written_at`, the instant of the charge; `old_head` and `old_record` before it; `gone`, the IDs
-- whose records have expired, if they were looked for. If the request names the counter again:
-- `changed`, its new records by ID, and `inserted`, their number.
do
  local byte, sub = string.byte, string.sub
  local FORMAT, TABLE_BYTES, MARK_BYTES, EXTRAS = 1, 65, 18, 2
  -- Bytes of a value that an algorithm can read at least, and of a head without its value and its
  -- marks.
  local MIN_VALUE, MIN_HEAD = 8, 21
  -- Position of the first receipt in a record, bytes of a receipt, receipts of a record.
  local RECEIPTS, RECEIPT, MAX_RECEIPTS = 10, 11, 4
  -- Inserts between two checks of the records at least.
  local UNCHECKED = 32
  -- The keys live until multiples of this, in us, so that most writes need not set their time to
  -- live.
  local LIVES_BY = 30000000
  local NONE, RESERVE, COMMIT, EXTEND, LOOK, RESERVE_ONCE, COMMIT_EACH = 0, 1, 2, 5, 6, 7, 8
  local NOTHING, RESERVED, REPEATED, UNRECORDED, SETTLED, EXTENDED_TTL, OPEN = 0, 1, 2, 3, 6, 7, 8
  local GCRA, CONCURRENCY = 4, 6
  local ALLOWED, DENIED, WITH_EFFECT = 1, 2, 64
  -- Paddings of heads, by length.
  local paddings = {}
  holds = { load = 0, is_full = 0, judge = 0, head_of = 0, write = 0, extend = 0, record_of = 0, more = 0 }

  -- Reads a counter. Returns no value if it is unreadable.
  function holds.load(algorithm, key, hold_key)
    local value, head = call('GET', key), algorithm ~= CONCURRENCY and call('HGET', hold_key, '')
    local own = {
      key = key, hold_key = hold_key, value = value, since = false, latest = 0, marks = '', unchecked = 0,
      last = 0, instant = now, whole = false, part = 0, amount = 0, least = 0, renews = false, written_at = now,
      old_head = head, kept = false,
    }
    local began
    -- A command that fails returns a table, whose length is 0. Two bytes of a head are read first.
    if value and #value < MIN_VALUE or head and #head < 2 then
      return nil
    elseif head then
      -- A value of up to 24 bytes is its own first and last 24 bytes.
      local first, final, size = value or '', value or '', value and #value or 0
      if size > 24 then
        first, final, size = sub(value, 1, 24), sub(value, -24), 24
      end
      local format, length, since, count, place = byte(head, 1, 2)
      if format ~= FORMAT or #head < length + MIN_HEAD then
        return nil
      end
      since, own.latest, count, place = unpack_from('>I7I7B', head, length + 3)
      if #head < place + MARK_BYTES * count + 3 then
        return nil
      end
      own.unchecked = unpack_from('>I4', head, place + MARK_BYTES * count)
      if length ~= 2 * size or sub(head, 3, size + 2) ~= first
        or first ~= final and sub(head, size + 3, length + 2) ~= final then
        own.is_stale, own.old_head, own.kept, began = true, false, own.latest, since
      else
        own.since = since
        if count > 0 then
          own.marks = sub(head, place, place + MARK_BYTES * count - 1)
        end
      end
    end
    if value and algorithm ~= CONCURRENCY then
      local has_data, state, granted_at, reset_at, _ = byte(value) >= WITH_DATA, value, nil, nil, nil
      if has_data then
        state, _, _, _, granted_at, reset_at = beside().split(value)
        if not state or #state < MIN_VALUE then
          return nil
        end
      end
      local last, whole, part, amount
      if algorithm == GCRA then
        last, whole, part, amount = rates().read(state)
        if not last then
          return nil
        end
      else
        last = unpack_from('>I7', state, 2)
      end
      if began and has_data and began <= reset_at then
        own.kept, own.latest = false, 0
      end
      local instant, latest = now, has_data and max(last, granted_at, reset_at) or last
      if latest > now then
        instant = latest
      end
      own.last, own.instant, own.written_at = latest, instant, instant
      if whole then
        whole = whole - (instant - last)
        if whole < 0 then
          whole, part = 0, 0
        end
        own.whole, own.part, own.amount = whole, part, amount
      end
    end
    return own
  end

  -- Lets a record matter until `expires`. The keys live until the next multiple of LIVES_BY at
  -- least, so a write that stays below it need not set their time to live.
  local function extend(own, expires)
    local latest, last, after = own.latest, own.last, own.instant
    local before = latest > last and latest or last
    if expires > latest then
      latest = expires
      own.latest = expires
    end
    if latest > after then
      after = latest
    end
    renews = renews_always or own.changed or not own.since
      or before - before % LIVES_BY < after - after % LIVES_BY
    own.renews, own.least = renews, after - after % LIVES_BY + LIVES_BY
  end

  -- Returns the record of an ID, unless it has expired.
  local function record_of(own, id)
    local record = own.changed and own.changed[id]
    if record == nil then
      record = (own.kept or own.since and not own.is_stale) and call('HGET', own.hold_key, id)
      if record and #record >= RECEIPTS - 1 and byte(record, 8) >= EXTRAS then
        record = holds.more().whole(own, id, record)
      end
    end
    if record and #record >= RECEIPTS - 1
      and (byte(record, 8) >= EXTRAS or #record == RECEIPTS - 1 + RECEIPT * byte(record, 9))
      and unpack_from('>I7', record) > own.instant then
      return record
    end
  end

  -- Judges a charge, a peek or a refund, with or without an ID. `records`: offset in the text of the
  -- entries to whose tallies its hits are counted. Returns as `judge` does.
  local function charge(own, operation, hits, algorithm, at, ttl, id, writes, entries, records)
    local is_reserve, of_records, effect, record = operation ~= NONE, own.latest, NOTHING, nil
    extend(own, is_reserve and own.instant + ttl or 0)
    local after, is_read, allowed, new, lives_until, left, reset, retry, window, wrote =
      judged(algorithm, at, own.value, hits, writes, entries)
    renews = renews_always
    if not is_read then
      return after, nil, allowed
    end
    own.written_at = is_read
    if wrote == WRITTEN and algorithm == GCRA then
      own.marks = writes == REFUND and marked.refunded(at, own, new) or marked.charged(at, own)
    end
    if is_reserve and wrote ~= 0 then
      local old, flags, count, receipts = record_of(own, id), 0, 0, ''
      if old then
        own.old_record = old
        own.expired_at, flags, count = unpack_from('>I7BB', old)
        receipts = sub(old, RECEIPTS)
      end
      if count >= MAX_RECEIPTS or not old and holds.is_full(own) then
        effect = UNRECORDED
      else
        effect = count == 0 and RESERVED or REPEATED
        if wrote == OF_GRANT or records or flags >= EXTRAS then
          local granted_at = wrote == OF_GRANT and is_read or 0
          record = holds.more().extended(old, own.instant + ttl, own.instant, hits, granted_at, records)
        else
          record = pack('>I7BBc0I7I4', own.instant + ttl, flags, count + 1, receipts, own.instant, hits)
        end
      end
    end
    own.since = own.since or (record or wrote == WRITTEN and algorithm == GCRA) and own.instant
    if not record then
      own.latest = of_records
    end
    return after, WITH_EFFECT + wrote + (allowed and ALLOWED or DENIED), left, window, reset, not allowed and retry,
      effect, 0, 0, new, lives_until, id, record
  end

  -- Judges a check of permits, which are in the counter's value. Returns as `judge` does.
  local function permits(own, operation, hits, at, id, ttl, writes, entries)
    permit_operation, permit_id, permit_ttl = operation, id, ttl
    local after, is_read, allowed, new, lives_until, left, reset, retry, _, wrote, taken =
      judged(CONCURRENCY, at, own.value, hits, writes, entries)
    if not is_read then
      return after
    end
    own.written_at = is_read
    local effect, held = NOTHING, 0
    if operation == LOOK then
      effect, held = taken > 0 and OPEN or NOTHING, taken
    elseif operation ~= NONE and wrote ~= 0 then
      if operation == EXTEND then
        effect = EXTENDED_TTL
      elseif operation ~= RESERVE then
        effect = SETTLED
      elseif wrote == OF_GRANT then
        effect = UNRECORDED
      else
        effect = taken > 0 and REPEATED or RESERVED
      end
    end
    return after, WITH_EFFECT + wrote + (allowed and ALLOWED or DENIED), left, 0, reset, not allowed and retry,
      effect, held, 0, new, lives_until
  end

  -- Returns true if there is no room for one more record.
  function holds.is_full(own)
    local has_records = own.since or own.kept
    if has_records and own.unchecked == 0 then
      return holds.more().is_full(own)
    end
    own.unchecked = has_records and own.unchecked - 1 or UNCHECKED
    if own.changed then
      own.inserted = (own.inserted or 0) + 1
    end
    return false
  end

  -- Judges a check of a counter whose fields begin at `at` of the text. `is_turn`: open holds of
  -- its ID do not matter, and tallies are counted later. Returns the position after it, and no more
  -- if the counter is unreadable, or nil and the instant if that is in none of the calendar windows
  -- that were sent. Otherwise:
  -- verdict, remaining hits, window, reset_after, retry_after if denied, effect, two amounts of
  -- hits, and what `write` takes.
  function holds.judge(own, algorithm, at, hits, writes, entries, is_turn)
    local operation, ttl, releases, id
    operation, ttl, releases, id, at = unpack_from('>BI7BBc0', text, at)
    if not own then
      return (judges[algorithm](at, false, 0, 0))
    end
    if operation == RESERVE_ONCE then
      local open = is_turn and 0 or holds.more().open_hits(own, algorithm, at, id)
      if open > 0 then
        return holds.more().known(own, algorithm, at, hits, open == hits)
      end
      operation = RESERVE
    elseif operation == COMMIT_EACH then
      operation = COMMIT
    end
    if algorithm == CONCURRENCY then
      return permits(own, operation, hits, at, id, ttl, writes, not is_turn and operation <= RESERVE and entries)
    elseif operation <= RESERVE then
      return charge(own, operation, hits, algorithm, at, ttl, id, writes, not is_turn and entries, entries)
    end
    return holds.more().change(own, operation, hits, algorithm, at, ttl, releases, id, entries)
  end

  -- Returns the head of the holds of a value.
  function holds.head_of(own, new)
    local size, first, final = #new, new, new
    if size > 24 then
      first, final, size = sub(new, 1, 24), sub(new, -24), 24
    end
    local marks = own.marks
    local short = TABLE_BYTES - 21 - 2 * size - #marks
    local padding = paddings[short]
    if not padding then
      padding = string.rep('\0', short)
      paddings[short] = padding
    end
    return pack('>BBc0c0I7I7Bc0I4c0', FORMAT, 2 * size, first, final, own.since, own.latest, #marks / MARK_BYTES,
      marks, own.unchecked, padding)
  end

  -- Writes the head and the record, if there is one, false if it is removed, and then the value: a
  -- value without its head would be one of a limit without holds. Returns the error, if any.
  function holds.write(own, new, lives_until, id, record)
    if lives_until and lives_until < own.least and (own.since or own.kept) then
      lives_until = own.least
    end
    if not own.since then
      return save(own.key, new, lives_until)
    end
    local hold_key, head, answer = own.hold_key, holds.head_of(own, new), nil
    if own.is_stale and not own.kept then
      call('DEL', hold_key)
    end
    if own.changed or record and byte(record, 8) >= EXTRAS then
      answer = holds.more().write_records(own, head, own.changed or { [id] = record })
    elseif record then
      answer = call('HSET', hold_key, '', head, id, record)
    else
      answer = call('HSET', hold_key, '', head)
    end
    if type(answer) == 'table' then
      return answer.err
    end
    if own.renews then
      local until_us = lives_until or own.least
      local ms = max(math.ceil((until_us - now + GRACE) / 1000), least_ms)
      texts[ms] = texts[ms] or string.format('%.0f', ms)
      answer = call('PEXPIRE', hold_key, texts[ms])
      if type(answer) == 'table' then
        return answer.err
      end
    end
    local err = save(own.key, new, lives_until)
    if not err and (own.gone or own.changed or record == false) then
      holds.more().forget(own, id, record)
    end
    return err
  end

  holds.extend, holds.record_of = extend, record_of
end
