-- holds: charges that are remembered by an ID, beside the value of a counter. The same steps as
-- crates/core/src/algorithm/hold and marks.rs.
--
-- Key     a hash beside the counter's key, in the same slot. The field '' is the head: format (1),
--   the first and the last 24 bytes of the counter's value with a length prefix (1), the instant
--   since which the marks are complete (7), the latest expiry of a record (7), marks (1), then each
--   with instant (7) and backlog (7, 4), inserts before the next check of the records (4), and padding
--   to 65 bytes, with which Redis keeps the hash as a table. Another field is the record of an ID:
--   expiry (7), 1 if a hold of it has ended (1), receipts (1), each with instant (7) and hits (4).
--   If the value is not the one of the head, the counter was written under a limit without holds,
--   by this release or an earlier one: marks and records do not count.
-- A check of a limit with holds has, after the parameters of its algorithm: number of the hash in
--   the keys (2), TTL us (7), 1 if a settle releases (1), operation (1: 0 none, 1 reserve, 2 commit,
--   3 settle, 4 cancel, 5 extend, 6 look, 7 reserve unless the ID has open holds, 8 commit for each
--   check of the request), cost (4), ID with a length prefix (1), and of a reserve
--   to take back: expiry of its record (7) and the one before (7), 0 if there is none.
-- Its reply ends with: effect (1: 0 none, 1 reserved, 2 reserved by an ID with open holds, 3 charged
--   without a record, 4 committed, 5 a cost without a hold, 6 settled, 7 extended, 8 open,
--   9 held already, 10 in conflict with other holds of the ID), two amounts of hits (4, 4), expiry of the record (7) and the one before (7).
do
  local FORMAT, TABLE_BYTES = 1, 65
  local MARK_BYTES, MAX_RECEIPTS, MAX_RECORDS = 18, 4, 100000
  -- Inserts between two checks of the records at least, and records that a check samples.
  local UNCHECKED, SAMPLED = 32, 128
  -- The keys live until multiples of this, in us, so that the fast path need not set their time to
  -- live with each write.
  local LIVES_BY = 30000000
  local NONE, RESERVE, COMMIT, SETTLE, CANCEL, EXTEND, LOOK = 0, 1, 2, 3, 4, 5, 6
  local RESERVE_ONCE, COMMIT_EACH = 7, 8
  local NOTHING, RESERVED, REPEATED, UNRECORDED, COMMITTED = 0, 1, 2, 3, 4
  local UNKNOWN, SETTLED, EXTENDED_TTL, OPEN, HELD, CONFLICT = 5, 6, 7, 8, 9, 10

  local function fingerprint(value)
    return string.sub(value, 1, 24) .. string.sub(value, -24)
  end

  local function read_head(own, head, value)
    local format, of_value, count, at
    format = string.byte(head, 1)
    of_value, own.since, own.latest, count, at = unpack_from('>Bc0I7I7B', head, 2)
    if format ~= FORMAT then
      error('holds of another format')
    elseif of_value ~= fingerprint(value) then
      own.since, own.latest, own.is_stale = nil, 0, true
      return
    end
    own.marks = string.sub(head, at, at + MARK_BYTES * count - 1)
    at = at + MARK_BYTES * count
    if #head >= at + 3 then
      own.unchecked = unpack_from('>I4', head, at)
    end
  end

  -- Reads the head of the holds of a counter. Returns nothing if it is unreadable.
  local function load(check, value)
    local own = { key = check.hold.key, marks = '', records = {}, dirty = {}, latest = 0, unchecked = 0, inserted = 0 }
    local head = call('HGET', own.key, '')
    if type(head) == 'table' then
      return nil
    end
    if head and not pcall(read_head, own, head, value or '') then
      return nil
    end
    return own
  end

  local function read_record(packed)
    local record, ended, count, at = { receipts = {} }
    record.until_us, ended, count, at = unpack_from('>I7BB', packed)
    record.has_ended = ended == 1
    for i = 1, count do
      local receipt = {}
      receipt.at, receipt.hits, at = unpack_from('>I7I4', packed, at)
      record.receipts[i] = receipt
    end
    return record
  end

  local function write_record(record)
    local parts = { pack('>I7BB', record.until_us, record.has_ended and 1 or 0, #record.receipts) }
    for i, receipt in ipairs(record.receipts) do
      parts[i + 1] = pack('>I7I4', receipt.at, receipt.hits)
    end
    return table.concat(parts)
  end

  -- Returns a record, expired or not. Records are replaced, never changed.
  local function fetch(own, id)
    local record = own.records[id]
    if record == nil then
      local packed = not own.is_stale and call('HGET', own.key, id)
      record = type(packed) == 'string' and read_record(packed)
      own.records[id] = record
    end
    return record
  end

  -- Returns a record that has not expired.
  local function get(own, id, at)
    local record = fetch(own, id)
    return record and record.until_us > at and record or nil
  end

  -- Returns the hits of the open holds of a record.
  local function hits_of(record)
    local sum = 0
    for _, receipt in ipairs(record and record.receipts or {}) do
      sum = sum + receipt.hits
    end
    return sum
  end

  local function put(own, id, record, at)
    own.since = own.since or at
    own.records[id], own.dirty[id] = record, true
    own.latest = math.max(own.latest, record and record.until_us or 0)
  end

  local function with(record, changes)
    local new = { until_us = record.until_us, has_ended = record.has_ended, receipts = record.receipts }
    for name, value in pairs(changes) do
      new[name] = value
    end
    return new
  end

  -- Returns the receipts without number i.
  local function without(receipts, i)
    local rest = { unpack(receipts) }
    table.remove(rest, i)
    return rest
  end

  -- Removes expired records among some of the hash. Returns the number of records sampled and of
  -- those removed.
  local function sample(own, at)
    local fields, removed = call('HRANDFIELD', own.key, tostring(SAMPLED), 'WITHVALUES'), 0
    own.expired = own.expired or {}
    for i = 1, fields.err and 0 or #fields, 2 do
      local id, packed = fields[i], fields[i + 1]
      local is_read, record = pcall(read_record, packed)
      if id ~= '' and is_read and record.until_us <= at and not own.expired[id] then
        own.expired[id], removed = true, removed + 1
      end
    end
    return fields.err and 0 or #fields / 2, removed
  end

  -- Returns true if there is no room for one more record. The records are checked after as many
  -- inserts as the last check allowed: as many as there are while few have expired, so that at most
  -- half of them have; as many as it removed while more have. Inserts of this request are not in
  -- the hash yet.
  local function is_full(own, at)
    local inserted = own.inserted
    own.inserted = inserted + 1
    if own.unchecked > 0 then
      own.unchecked = own.unchecked - 1
      return false
    end
    local count = not own.is_stale and call('HLEN', own.key)
    if type(count) ~= 'number' then
      return false
    end
    count = count + inserted
    local sampled, removed, allowed = 0, 0, UNCHECKED
    if count > UNCHECKED then
      sampled, removed = sample(own, at)
      allowed = removed * 4 < sampled and count - removed or math.max(removed, UNCHECKED)
    end
    own.unchecked = math.max(math.min(allowed, MAX_RECORDS - count + removed), 0)
    return count > MAX_RECORDS and removed == 0
  end

  -- Writes hits to the limit itself: in a mode for those that go past it, or may. Returns the instant
  -- of the grant if they are from one.
  local function charge(check, state, hits, mode)
    local own, marks, granted_at = state.holds, nil, nil
    if check.number == GCRA then
      text = check.text
      marks = marked.charged(check.parameters, state.value, state.at, own.marks)
    end
    granted_at = select(7, judge(check, state, hits, mode))
    if marks and not granted_at then
      own.since, own.marks = own.since or state.at, marks
    end
    return granted_at
  end

  local function take_back(check, state, hits, charged)
    local own = state.holds
    if hits == 0 or charged > state.at then
      return false
    end
    check.charged_at = charged
    if check.number ~= GCRA then
      local _, took = judge(check, state, hits, TAKE_BACK)
      return took
    end
    local reset_at = state.value and select(6, split(state.value)) or 0
    if not state.value or charged <= reset_at or not own.since or own.since > charged then
      return false
    end
    text, charged_at = check.text, charged
    local new, marks = marked.take_back(check.parameters, state.value, state.at, own.marks, hits)
    if new then
      own.marks, state.value, state.lives_until = marks, with_data.with_state(state.value, new), nil
    end
    return new ~= nil
  end

  local function put_and_touch(check, state, record, at)
    put(state.holds, check.hold.id, record, at)
    -- The latest instant of the counter, whose record has changed.
    judge(check, state, 0, TOUCH)
  end

  -- Remembers a charge of this instant.
  local function remember(check, state, at)
    local own, hold = state.holds, check.hold
    local record = get(own, hold.id, at)
    local is_open = record and #record.receipts > 0
    if record and #record.receipts >= MAX_RECEIPTS or not record and is_full(own, at) then
      hold.effect = UNRECORDED
      return
    end
    hold.before = record and record.until_us or 0
    hold.until_us = at + hold.ttl
    local receipts = { unpack(record and record.receipts or {}) }
    receipts[#receipts + 1] = { at = at, hits = check.hits }
    local has_ended = record ~= nil and record.has_ended
    put(own, hold.id, { until_us = hold.until_us, has_ended = has_ended, receipts = receipts }, at)
    hold.effect = is_open and REPEATED or RESERVED
  end

  -- Puts a charge of `held` hits to `cost`.
  local function correct(check, state, receipt, cost, at)
    if cost < receipt.hits then
      take_back(check, state, receipt.hits - cost, receipt.at)
    elseif cost > receipt.hits then
      charge(check, state, cost - receipt.hits, PAST)
    end
  end

  local function commit_unknown(check, state, at)
    local hold = check.hold
    if hold.cost > 0 then
      charge(check, state, hold.cost, PAST)
    end
    hold.effect, hold.cost_charged = UNKNOWN, hold.cost
    if not is_full(state.holds, at) then
      local record = { until_us = at + hold.ttl, has_ended = true, receipts = {} }
      put_and_touch(check, state, record, at)
    end
    return true
  end

  -- Performs an operation on a record with open holds.
  local function change(check, state, record, at)
    local hold, oldest = check.hold, record.receipts[1]
    if hold.operation == LOOK then
      hold.effect, hold.held = OPEN, hits_of(record)
      return false
    elseif hold.operation == EXTEND then
      hold.effect, record = EXTENDED_TTL, with(record, { until_us = at + hold.ttl })
    elseif hold.operation == COMMIT then
      correct(check, state, oldest, hold.cost, at)
      hold.effect, hold.held, hold.cost_charged = COMMITTED, oldest.hits, hold.cost
      local receipts = without(record.receipts, 1)
      record = with(record, { receipts = receipts, has_ended = true, until_us = at + hold.ttl })
    else
      if hold.operation == CANCEL or hold.releases then
        correct(check, state, oldest, 0, at)
      end
      hold.effect = SETTLED
      record = with(record, { receipts = without(record.receipts, 1), has_ended = true })
    end
    put_and_touch(check, state, record, at)
    return true
  end

  local function change_slots(check, state)
    local hold = check.hold
    local _, changed, _, _, _, _, _, open = judge(check, state, 0, 0, hold.operation)
    if hold.operation == LOOK then
      hold.held = open
      hold.effect = open > 0 and OPEN or NOTHING
    elseif hold.operation == EXTEND then
      hold.effect = changed and EXTENDED_TTL or NOTHING
    else
      hold.effect = changed and SETTLED or NOTHING
    end
    return changed
  end

  holds = { load = load }

  -- Reads the operation of a check, whose key is still a number in the request.
  function holds.parse(check, text, at)
    local hold, releases = {}
    hold.key, hold.ttl, releases, hold.operation, hold.cost, hold.id, at =
      unpack_from('>I2I7BBI4Bc0', text, at)
    hold.releases = releases == 1
    hold.ends_each = hold.operation == COMMIT_EACH or hold.operation == CANCEL
    hold.once = hold.operation == RESERVE_ONCE and check.wanted ~= 3
    if hold.operation == RESERVE_ONCE then
      hold.operation = RESERVE
    elseif hold.operation == COMMIT_EACH then
      hold.operation = COMMIT
    end
    if check.wanted == 3 then
      hold.until_us, hold.before, at = unpack_from('>I7I7', text, at)
    end
    check.hold = hold
    return at
  end

  -- Sets the effect of reserves by an ID that has open holds before the request: they are the same
  -- hits that the request reserves by it at the counter, or in conflict with it.
  function holds.find_held(request)
    local wanted = {}
    for _, check in ipairs(request) do
      if check.hold and check.hold.once then
        local name = check.key .. check.hold.id
        wanted[name] = (wanted[name] or 0) + check.hits
      end
    end
    for _, check in ipairs(request) do
      local hold, state = check.hold, check.counter.state
      if hold and hold.once and state then
        local open
        if check.number == SLOTS then
          open = select(8, judge(check, state, 0, 0, LOOK))
        else
          open = hits_of(get(state.holds, hold.id, state.at))
        end
        if open > 0 then
          hold.known = open == wanted[check.key .. hold.id] and HELD or CONFLICT
          hold.conflicts = hold.known == CONFLICT
        end
      end
    end
  end

  -- Charges hits, and remembers them if they are reserved. Returns the instant of the grant if they are
  -- from one.
  function holds.charge(check, state)
    local hold, is_reserve = check.hold, check.hold.operation == RESERVE
    local granted_at = charge(check, state, check.hits, BOTH)
    if granted_at then
      hold.effect = is_reserve and UNRECORDED or nil
    elseif is_reserve and check.number == SLOTS then
      local open = select(8, judge(check, state, 0, 0, LOOK))
      hold.effect = open > check.hits and REPEATED or RESERVED
    elseif is_reserve then
      remember(check, state, state.at)
    end
    return granted_at
  end

  -- Performs an operation on existing holds, unless the request has ended one of this ID already.
  -- Returns true if anything changed.
  function holds.change(check, state, ended)
    local hold, at = check.hold, state.at
    local name = check.key .. hold.id
    if ended[name] and not hold.ends_each then
      return false
    end
    local changed
    if check.number == SLOTS then
      changed = change_slots(check, state)
    else
      local record = get(state.holds, hold.id, at)
      if record and #record.receipts > 0 then
        changed = change(check, state, record, at)
      elseif not record and hold.operation == COMMIT then
        changed = commit_unknown(check, state, at)
      end
    end
    ended[name] = hold.effect == COMMITTED or hold.effect == SETTLED or nil
    return changed or false
  end

  -- Undoes a charge as far as its hold is still open; one without a record as any charge.
  function holds.take_back(check, state)
    local hold, at = check.hold, state.at
    if check.number == SLOTS then
      local _, took = judge(check, state, check.hits, TAKE_BACK)
      return took
    elseif hold.until_us == 0 then
      return take_back(check, state, check.hits, check.charged_at)
    end
    local record = get(state.holds, hold.id, at)
    for i = record and #record.receipts or 0, 1, -1 do
      local receipt = record.receipts[i]
      if receipt.at == check.charged_at and receipt.hits == check.hits then
        correct(check, state, receipt, 0, at)
        local receipts = without(record.receipts, i)
        if #receipts == 0 and not record.has_ended then
          put_and_touch(check, state, false, at)
        else
          local expiry = record.until_us
          if expiry == hold.until_us and hold.before > 0 then
            expiry = hold.before
          end
          put_and_touch(check, state, with(record, { receipts = receipts, until_us = expiry }), at)
        end
        return true
      end
    end
    return false
  end

  -- Takes hits back for a caller, newest first. Returns true if it took any.
  function holds.refund(check, state)
    local own, value = state.holds, state.value
    if check.number ~= GCRA or not value then
      local _, took = judge(check, state, check.hits, REFUND)
      return took
    end
    text = check.text
    local settled, marks = marked.settle(check.parameters, value, state.at, own.marks)
    state.value = with_data.with_state(value, settled)
    local _, took = judge(check, state, check.hits, REFUND)
    if not took then
      state.value = value
      return false
    end
    own.since, own.marks = own.since or state.at, marked.refunded(check.parameters, state.value, state.at, marks)
    return true
  end

  function holds.copy(own)
    local new = { key = own.key, since = own.since, latest = own.latest, is_stale = own.is_stale }
    new.unchecked, new.inserted = own.unchecked, own.inserted
    new.marks, new.records, new.dirty = own.marks, {}, {}
    for id, record in pairs(own.records) do
      new.records[id], new.dirty[id] = record, own.dirty[id]
    end
    return new
  end

  -- Returns the instant until which the keys of a counter live that was last written at `last`.
  function holds.lives_until(own, last)
    local matters = math.max(own.latest, last)
    return matters - matters % LIVES_BY + LIVES_BY
  end

  local function head_of(own, value)
    local of_value = fingerprint(value)
    local count = #own.marks / MARK_BYTES
    local head = pack('>BBc0I7I7B', FORMAT, #of_value, of_value, own.since, own.latest, count) .. own.marks
      .. pack('>I4', own.unchecked)
    return head .. string.rep('\0', TABLE_BYTES - #head)
  end

  -- Writes the holds of a counter whose value is written next. Returns the error, if any.
  function holds.save(own, value, ms)
    if own.is_stale then
      call('DEL', own.key)
    end
    if not own.since then
      return nil
    end
    local command = { 'HSET', own.key, '', head_of(own, value) }
    for id in pairs(own.dirty) do
      local record = own.records[id]
      if record then
        command[#command + 1], command[#command + 2] = id, write_record(record)
      end
    end
    local answer = call(unpack(command))
    if type(answer) == 'table' and answer.err then
      return answer.err
    end
    answer = call('PEXPIRE', own.key, ms)
    return type(answer) == 'table' and answer.err or nil
  end

  -- Returns the IDs whose records a request changes, whether it is admitted or not.
  function holds.changed(own, otherwise)
    local ids = {}
    for id in pairs(own.dirty) do
      ids[#ids + 1] = id
    end
    for id in pairs(otherwise.dirty) do
      if not own.dirty[id] then
        ids[#ids + 1] = id
      end
    end
    return ids
  end

  -- Returns the head with a length prefix (2), empty if there is none, and for each ID: the ID with
  -- a length prefix (1), and its record with one (2), empty if there is none.
  function holds.packed(own, value, ids)
    local head = own.since and head_of(own, value) or ''
    local parts = { pack('>I2c0', #head, head) }
    for i, id in ipairs(ids) do
      local record = fetch(own, id)
      local text = record and write_record(record) or ''
      parts[i + 1] = pack('>Bc0I2c0', #id, id, #text, text)
    end
    return table.concat(parts)
  end

  -- Returns the IDs in the result of `packed`.
  function holds.ids_of(text)
    local ids, _, at = {}, unpack_from('>I2c0', text, 1)
    while at <= #text do
      ids[#ids + 1], _, at = unpack_from('>Bc0I2c0', text, at)
    end
    return ids
  end

  -- Restores the head and the records in the result of `packed`.
  function holds.restore(own, value, text)
    local head, at = unpack_from('>I2c0', text, 1)
    own.since, own.latest, own.marks = nil, 0, ''
    if head == '' then
      own.is_stale = true
    else
      read_head(own, head, value)
    end
    while at <= #text do
      local id, record
      id, record, at = unpack_from('>Bc0I2c0', text, at)
      own.records[id], own.dirty[id] = record ~= '' and read_record(record), true
    end
    return own
  end

  -- Removes records that are gone, after the counter's value was written.
  function holds.forget(own)
    local gone = {}
    for id in pairs(own.dirty) do
      if not own.records[id] then
        gone[#gone + 1] = id
      end
    end
    for id in pairs(own.expired or {}) do
      if not own.records[id] and not own.dirty[id] then
        gone[#gone + 1] = id
      end
    end
    if #gone > 0 then
      call('HDEL', own.key, unpack(gone))
    end
  end

  -- Forgets the effect of a check on a draft or a copy.
  function holds.begin(check)
    local hold = check.hold
    hold.effect, hold.held, hold.cost_charged = hold.known, nil, nil
    if check.wanted ~= 3 then
      hold.until_us, hold.before = nil, nil
    end
  end

  -- Returns the fields of a check's reply.
  function holds.reply(check)
    local hold = check.hold
    return pack('>BI4I4I7I7', hold.effect or NOTHING, hold.held or 0, hold.cost_charged or 0,
      hold.until_us or 0, hold.before or 0)
  end
end
