-- hold_changes: what holds.lua needs for operations on existing holds and for rare cases.
--
-- Created on first use, since each function costs the calls that do not need it.
holds.more = function()
  local byte, sub = string.byte, string.sub
  local MARK_BYTES, RECEIPTS, RECEIPT, MAX_RECORDS = 18, 10, 11, 100000
  -- Inserts between two checks of the records at least, and records that a check samples.
  local UNCHECKED, SAMPLED = 32, 128
  local NONE, COMMIT, CANCEL, EXTEND, LOOK = 0, 2, 4, 5, 6
  local NOTHING, COMMITTED, UNKNOWN, SETTLED, EXTENDED_TTL, OPEN, HELD, CONFLICT = 0, 4, 5, 6, 7, 8, 9, 10
  local GCRA, CONCURRENCY = 4, 6
  local ALLOWED, DENIED, WITH_EFFECT = 1, 2, 64
  local record_of = holds.record_of
  local more = {}

  -- Finds expired records among some of the hash. Returns the number of those looked at, and of the
  -- expired ones.
  local function sample(own)
    local fields, count, changed = call('HRANDFIELD', own.hold_key, tostring(SAMPLED), 'WITHVALUES'), 0, own.changed or {}
    local gone = own.gone or {}
    for i = 1, #fields, 2 do
      local id, record = fields[i], fields[i + 1]
      if id ~= '' and #record >= 7 and unpack_from('>I7', record) <= own.instant and not (gone[id] or changed[id]) then
        gone[id], count = true, count + 1
      end
    end
    own.gone = gone
    return #fields / 2, count
  end

  -- Returns true if there is no room for one more record. The records are checked after as many
  -- inserts as the last check allowed: as many as there are while few have expired, so that at most
  -- half of them have; as many as it removed while more have.
  function more.is_full(own)
    local count = call('HLEN', own.hold_key)
    local added = own.inserted or 0
    own.inserted = added + 1
    if type(count) ~= 'number' then
      return false
    end
    count = count + added
    local sampled, removed, allowed = 0, 0, UNCHECKED
    if count > UNCHECKED then
      sampled, removed = sample(own)
      allowed = removed * 4 < sampled and count - removed or max(removed, UNCHECKED)
    end
    own.unchecked = max(math.min(allowed, MAX_RECORDS - count + removed), 0)
    return count > MAX_RECORDS and removed == 0
  end

  -- Returns the hits of the open holds of an ID.
  function more.open_hits(own, algorithm, at, id)
    if algorithm == CONCURRENCY then
      permit_operation, permit_id = LOOK, id
      return select(11, judged(CONCURRENCY, at, own.value, 0, 0)) or 0
    end
    local record, sum = record_of(own, id), 0
    for place = RECEIPTS, record and #record or 0, RECEIPT do
      sum = sum + unpack_from('>I4', record, place + 7)
    end
    return sum
  end

  -- Takes hits of a charge back. Returns as `judged` does, or no new value if no hits are left.
  local function taken_back(own, algorithm, at, hits, of_charge, of_grant)
    local value = own.value
    if not value or algorithm ~= CONCURRENCY and of_charge > own.instant then
      return at
    elseif algorithm ~= GCRA or of_grant then
      charged_at = of_charge
      return judged(algorithm, at, value, hits, TAKE_BACK, nil, of_grant)
    end
    charged_at, own.since = of_charge, own.since or own.instant
    if own.since > of_charge then
      -- The marks do not reach back to the charge.
      local after, is_read, allowed, new, lives_until, left, reset, retry, window = judged(GCRA, at, value, hits, TAKE_BACK)
      if new then
        own.marks = marked.given_back(at, own, new)
      end
      return after, is_read, allowed, new, lives_until, left, reset, retry, window
    end
    local has_data = byte(value) >= WITH_DATA
    local reset_at, new, marks = has_data and select(6, beside().split(value)) or 0, nil, nil
    if of_charge > reset_at then
      new, marks = marked.take_back(at, value, own.instant, own.marks, hits)
    end
    if not new then
      return at
    end
    own.marks, own.value = marks, has_data and beside().with_state(value, new) or new
    return judged(algorithm, at, own.value, 0, TOUCH)
  end

  -- Puts a charge of `held` hits to `cost`, and sets the latest instant of the counter. Returns as
  -- `judged` does.
  local function correct(own, algorithm, at, held, cost, of_charge)
    local after, is_read, allowed, new, lives_until, left, reset, retry, window
    if cost > held then
      if algorithm == GCRA then
        own.marks = marked.charged(at, own)
      end
      return judged(algorithm, at, own.value, cost - held, PAST)
    elseif cost < held then
      after, is_read, allowed, new, lives_until, left, reset, retry, window =
        taken_back(own, algorithm, at, held - cost, of_charge)
    end
    if not new then
      return judged(algorithm, at, own.value, 0, TOUCH)
    end
    return after, is_read, allowed, new, lives_until, left, reset, retry, window
  end

  -- Returns the report of a check without a write, as `judge` does.
  local function report(own, algorithm, at, effect, held)
    permit_operation, permit_id = LOOK, ''
    local after, is_read, allowed, _, _, left, reset, _, window = judged(algorithm, at, own.value, 0, REFUND)
    if not is_read then
      return after, nil, allowed
    end
    return after, WITH_EFFECT + ALLOWED, left, window, reset, nil, effect, held, 0
  end

  -- Returns the report of a reserve by an ID with open holds, as `judge` does: they are the same
  -- hits, or in conflict with it.
  function more.known(own, algorithm, at, hits, is_same)
    if is_same then
      return report(own, algorithm, at, HELD, 0)
    end
    permit_operation, permit_id = NONE, ''
    local after, is_read, allowed, _, _, left, reset, retry, window =
      judged(algorithm, at, own.value, hits, DENIED_REPORT)
    if not is_read then
      return after, nil, allowed
    end
    return after, WITH_EFFECT + DENIED, left, window, reset, retry, CONFLICT, 0, 0
  end

  -- Judges an operation on existing holds. Returns as `judge` does.
  function more.change(own, operation, hits, algorithm, at, ttl, releases, id)
    local record, new_record = record_of(own, id), nil
    if not record and operation ~= COMMIT or record and byte(record, 9) == 0 then
      return report(own, algorithm, at, NOTHING, 0)
    elseif operation == LOOK then
      return report(own, algorithm, at, OPEN, more.open_hits(own, algorithm, at, id))
    end
    local expires, charged, held, effect = own.instant + ttl, own.instant, 0, UNKNOWN
    if record then
      local until_us, _, count
      until_us, _, count, charged, held = unpack_from('>I7BBI7I4', record)
      if operation == EXTEND then
        effect, new_record = EXTENDED_TTL, pack('>I7', expires) .. sub(record, 8)
      else
        effect = operation == COMMIT and COMMITTED or SETTLED
        expires = operation == COMMIT and expires or until_us
        new_record = pack('>I7BB', expires, 1, count - 1) .. sub(record, RECEIPTS + RECEIPT)
      end
    elseif holds.is_full(own) then
      expires = 0
    else
      new_record = pack('>I7BB', expires, 1, 0)
    end
    local cost = held
    if operation == COMMIT then
      cost = hits
    elseif operation == CANCEL or operation ~= EXTEND and releases == 1 then
      cost = 0
    end
    holds.extend(own, expires)
    local after, is_read, allowed, new, lives_until, left, reset, _, window =
      correct(own, algorithm, at, held, cost, charged)
    renews = renews_always
    if not is_read then
      return after, nil, allowed
    end
    -- A counter without a head has room for a record, so that it gets both.
    own.since = own.since or own.instant
    if operation ~= COMMIT then
      held, cost = 0, 0
    end
    return after, WITH_EFFECT + WRITTEN + ALLOWED, left, window, reset, nil, effect, held, cost, new, lives_until,
      id, new_record
  end

  -- Takes back a charge of a counter, made by a reserve whose record expires at `until_us`, before
  -- it at `before`; 0 if it has none. Returns the new value, if any, the time until which it
  -- matters, and the new record.
  function more.take_back(own, algorithm, at, hits, of_charge, of_grant, id, until_us, before)
    permit_operation, permit_id = NONE, id
    holds.extend(own, 0)
    own.since = own.since or own.kept and own.instant
    if algorithm == CONCURRENCY or until_us == 0 then
      local _, _, _, new, lives_until = taken_back(own, algorithm, at, hits, of_charge, of_grant)
      return new, lives_until
    end
    local record = record_of(own, id)
    for place = record and #record - RECEIPT + 1 or 0, RECEIPTS, -RECEIPT do
      local charged, held = unpack_from('>I7I4', record, place)
      if charged == of_charge and held == hits then
        local _, _, _, new, lives_until = correct(own, algorithm, at, held, 0, charged)
        local expires, ended, count = unpack_from('>I7BB', record)
        if expires == until_us and before > 0 then
          expires = before
        end
        local left = sub(record, RECEIPTS, place - 1) .. sub(record, place + RECEIPT)
        local is_kept = count > 1 or ended == 1
        return new, lives_until, is_kept and pack('>I7BB', expires, ended, count - 1) .. left
      end
    end
  end

  -- Gives a counter the fields of the head that it had before a charge, empty if there was none,
  -- for `write`.
  function more.restore(own, head)
    own.since, own.latest, own.marks, own.is_stale, own.kept = false, 0, '', false, false
    if head == '' then
      call('DEL', own.hold_key)
    else
      local count, place
      own.since, own.latest, count, place = unpack_from('>I7I7B', head, byte(head, 2) + 3)
      own.marks = sub(head, place, place + MARK_BYTES * count - 1)
    end
    holds.extend(own, 0)
    own.renews = true
  end

  -- Returns the state of a counter with this value and record, without tallies, to compare it with
  -- another.
  function more.state(own, value, record)
    return beside().bare(value) .. pack('>I7I7', own.since or 0, own.latest) .. own.marks .. record
  end

  -- Returns the record of an ID, whether or not it has expired; empty if there is none.
  function more.stored_record(own, id)
    local record = id ~= '' and (own.since or own.kept) and call('HGET', own.hold_key, id)
    return type(record) == 'string' and record or ''
  end

  -- Returns what `take_back` and `restore` need of a charge: expiry of its record after it and
  -- before it, 0 if there is none (7, 7), the head and the record before it, each with a length
  -- prefix (2).
  function more.undo(own)
    local expires, before = 0, 0
    local head, record = own.old_head or '', own.old_record or ''
    if own.kept and head == '' then
      -- Of a counter whose head was of another value: its records, and no marks.
      head = pack('>BBI7I7B', 1, 0, own.since or own.instant, own.kept, 0)
    end
    if own.record then
      expires, before = unpack_from('>I7', own.record), own.expired_at or 0
    end
    return pack('>I7I7I2c0I2c0', expires, before, #head, head, #record, record)
  end

  -- Returns a copy of a counter, with another value if it is given.
  function more.copy(own, value)
    local new = {}
    for name, of_name in pairs(own) do
      new[name] = of_name
    end
    if value then
      holds.extend(new, 0)
      renews = renews_always
      new.value, new.new = value, value
    end
    return new
  end

  -- Returns a counter after a check of a request that names it again.
  function more.after(own, new, id, record)
    local changed = {}
    for other, of_other in pairs(own.changed) do
      changed[other] = of_other
    end
    if record ~= nil then
      changed[id] = record
    end
    own.value, own.new, own.last, own.changed, own.record, own.whole = new, new, own.instant, changed, record, false
    return own
  end

  -- Writes the head, and all records that a request has changed.
  function more.write_records(own, head)
    local command = { 'HSET', own.hold_key, '', head }
    for id, record in pairs(own.changed) do
      if record then
        command[#command + 1], command[#command + 2] = id, record
      end
    end
    return call(unpack(command))
  end

  -- Removes records that are gone, after the counter's value was written.
  function more.forget(own, id, record)
    local changed, ids = own.changed or {}, {}
    if id and record == false then
      ids[1] = id
    end
    for other in pairs(own.gone or {}) do
      if other ~= id and not changed[other] then
        ids[#ids + 1] = other
      end
    end
    for other, of_other in pairs(changed) do
      if not of_other then
        ids[#ids + 1] = other
      end
    end
    if #ids > 0 then
      call('HDEL', own.hold_key, unpack(ids))
    end
  end

  holds.more = function()
    return more
  end
  return more
end
