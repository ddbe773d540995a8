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
  local EXTRAS = 2
  -- What a receipt has besides: format, and bytes of nothing.
  local extra_format, nothing = '>I7I2c0', string.rep('\0', 9)
  local record_of = holds.record_of
  local more = {}

  -- Returns the name of the field that has a record as a whole.
  local function whole_name(id)
    return string.char(#id) .. id .. string.rep('\0', 128 - #id)
  end

  -- Returns a record of some receipts, and of what each has besides, empty if none has.
  local function joined(expires, flags, receipts, extras)
    local count = #receipts / RECEIPT
    if extras == '' or extras == string.rep(nothing, count) then
      return pack('>I7BB', expires, flags % EXTRAS, count) .. receipts
    end
    return pack('>I7BB', expires, flags % EXTRAS + EXTRAS, count) .. receipts .. extras
  end

  -- Returns the receipts of a record, and what each has besides, empty if none has.
  local function parts(record)
    local flags, count = byte(record, 8, 9)
    if flags < EXTRAS then
      return sub(record, RECEIPTS), ''
    end
    local place = RECEIPTS + RECEIPT * count
    return sub(record, RECEIPTS, place - 1), sub(record, place)
  end

  -- Returns the offset of what receipt i has besides, and that after it.
  local function find_extra(extras, i)
    local place, after = 1, 1
    for _ = 1, i do
      place = after
      after = select(3, unpack_from(extra_format, extras, place))
    end
    return place, after
  end

  -- Returns instant and hits of receipt i of a record, the instant of its grant, the entries of its
  -- tallies, and the receipts and extras of the others.
  local function taken_out(record, i)
    local receipts, extras = parts(record)
    local place = RECEIPT * (i - 1) + 1
    local charged, held = unpack_from('>I7I4', receipts, place)
    receipts = sub(receipts, 1, place - 1) .. sub(receipts, place + RECEIPT)
    if extras == '' then
      return charged, held, 0, '', receipts, extras
    end
    local extra, after = find_extra(extras, i)
    local granted_at, entries = unpack_from(extra_format, extras, extra)
    return charged, held, granted_at, entries, receipts, sub(extras, 1, extra - 1) .. sub(extras, after)
  end

  -- Returns a record without grants and entries.
  local function bare(record)
    local receipts, extras = parts(record)
    local kept, place = '', 1
    for i = 1, #receipts / RECEIPT do
      local granted_at, _
      granted_at, _, place = unpack_from(extra_format, extras, place)
      if granted_at == 0 then
        kept = kept .. sub(receipts, RECEIPT * (i - 1) + 1, RECEIPT * i)
      end
    end
    return sub(record, 1, 8) .. string.char(#kept / RECEIPT) .. kept
  end

  -- Removes the field of a record as a whole with the next write, unless a new one has it.
  local function forget_whole(own, id, old, new)
    if old ~= '' and byte(old, 8) >= EXTRAS and not (new and byte(new, 8) >= EXTRAS) then
      own.gone = own.gone or {}
      own.gone[whole_name(id)] = true
    end
  end

  -- Returns a record with one more receipt, made from no record or an old one.
  function more.extended(old, expires, instant, hits, granted_at, records)
    local receipts, extras = '', ''
    if old then
      receipts, extras = parts(old)
      extras = extras == '' and string.rep(nothing, #receipts / RECEIPT) or extras
    end
    local entries = records and unpack_from('>I4c0', text, records - 4) or ''
    return joined(expires, old and byte(old, 8) or 0, receipts .. pack('>I7I4', instant, hits),
      extras .. pack(extra_format, granted_at, #entries, entries))
  end

  -- Returns a record as a whole, by the field of its ID. If another release has changed that since,
  -- grants and entries are forgotten.
  function more.whole(own, id, record)
    local stored = call('HGET', own.hold_key, whole_name(id))
    if type(stored) == 'string' and #stored >= RECEIPTS - 1 and byte(stored, 8) >= EXTRAS
      and sub(bare(stored), 8) == sub(record, 8) then
      return sub(record, 1, 7) .. sub(stored, 8)
    end
    return sub(record, 1, 7) .. string.char(byte(record, 8) % EXTRAS) .. sub(record, 9)
  end

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
    for i = 1, record and byte(record, 9) or 0 do
      sum = sum + unpack_from('>I4', record, RECEIPTS + RECEIPT * i - 4)
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

  -- Puts a charge of `held` hits of a grant to `cost`, as far as that grant is there: gives back to
  -- it, or takes more. Returns the hits that are held by that, of which none are given back to the
  -- limit.
  local function of_grant(own, held, cost, granted_at)
    if own.value then
      local with_data = beside()
      local state, tallies, left, gone_at, of, reset_at, reset_until = with_data.split(own.value)
      if of == granted_at and own.instant < gone_at then
        local taken = math.min(left, cost - held)
        own.value = with_data.joined(state, tallies, left - taken, gone_at, of, reset_at, reset_until)
        held = held + taken
      end
    end
    return math.min(held, cost)
  end

  -- Puts a charge of `held` hits to `cost`, those of a grant if `granted_at` is not 0, and sets the
  -- latest instant of the counter. Returns as `judged` does.
  local function correct(own, algorithm, at, held, cost, of_charge, granted_at)
    if granted_at > 0 then
      held = of_grant(own, held, cost, granted_at)
    end
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

  -- Judges an operation on existing holds. `records`: offset in the text of the entries to whose
  -- tallies a cost without a hold is counted. Returns as `judge` does.
  function more.change(own, operation, hits, algorithm, at, ttl, releases, id, records)
    local record, new_record = record_of(own, id), nil
    if not record and operation ~= COMMIT or record and byte(record, 9) == 0 then
      return report(own, algorithm, at, NOTHING, 0)
    elseif operation == LOOK then
      return report(own, algorithm, at, OPEN, more.open_hits(own, algorithm, at, id))
    end
    local expires, charged, held, effect, granted_at, entries = own.instant + ttl, own.instant, 0, UNKNOWN, 0, ''
    if record then
      local receipts, extras
      charged, held, granted_at, entries, receipts, extras = taken_out(record, 1)
      if operation == EXTEND then
        effect, new_record = EXTENDED_TTL, pack('>I7', expires) .. sub(record, 8)
      else
        effect = operation == COMMIT and COMMITTED or SETTLED
        expires = operation == COMMIT and expires or unpack_from('>I7', record)
        new_record = joined(expires, 1, receipts, extras)
        forget_whole(own, id, record, new_record)
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
      correct(own, algorithm, at, held, cost, charged, granted_at)
    renews = renews_always
    if not is_read then
      return after, nil, allowed
    end
    -- A counter without a head has room for a record, so that it gets both.
    own.since = own.since or own.instant
    if cost ~= held and entries ~= '' then
      new = beside().with_hits(new, 1, cost - held, 0, entries)
    elseif not record and cost > 0 and records then
      new = beside().with_hits(new, records, cost, 0)
    end
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
    for i = record and byte(record, 9) or 0, 1, -1 do
      local charged, held, granted_at, _, receipts, extras = taken_out(record, i)
      if held == hits and (of_grant and granted_at or charged) == of_charge and of_grant == (granted_at > 0) then
        local _, _, _, new, lives_until = correct(own, algorithm, at, held, 0, charged, granted_at)
        local expires, flags, count = unpack_from('>I7BB', record)
        if expires == until_us and before > 0 then
          expires = before
        end
        local is_kept = count > 1 or flags % EXTRAS == 1
        local kept = is_kept and joined(expires, flags, receipts, extras)
        forget_whole(own, id, record, kept)
        return new, lives_until, kept
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
    if type(record) == 'string' and #record >= RECEIPTS - 1 and byte(record, 8) >= EXTRAS then
      record = more.whole(own, id, record)
    end
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

  -- Writes the head, and the records that a request has changed.
  function more.write_records(own, head, changed)
    local command = { 'HSET', own.hold_key, '', head }
    for id, record in pairs(changed) do
      if record and byte(record, 8) >= EXTRAS then
        command[#command + 1], command[#command + 2] = id, bare(record)
        command[#command + 1], command[#command + 2] = whole_name(id), record
      elseif record then
        command[#command + 1], command[#command + 2] = id, record
      end
    end
    return call(unpack(command))
  end

  -- Removes records that are gone, after the counter's value was written.
  function more.forget(own, id, record)
    local kept, ids = { [id or ''] = true }, {}
    for other, of_other in pairs(own.changed or { [id or ''] = record }) do
      kept[other] = true
      if not of_other then
        ids[#ids + 1] = other
      elseif byte(of_other, 8) >= EXTRAS then
        kept[whole_name(other)] = true
      end
    end
    for other in pairs(own.gone or {}) do
      if not kept[other] then
        ids[#ids + 1] = other
      end
    end
    if #ids > 0 then
      call('HDEL', own.hold_key, unpack(ids))
    end
  end

  more.forget_whole = forget_whole
  holds.more = function()
    return more
  end
  return more
end
