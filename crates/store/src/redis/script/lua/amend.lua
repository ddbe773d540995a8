-- amend: changes counters one by one, for an operator or to take a charge back. The same steps as
-- crates/core/src/algorithm/amend.rs and write.rs.
--
-- KEYS    the counter of each change, followed by the hash of its holds if the limit keeps them,
--   and by the number of the loan if one is returned.
-- ARGV[1] and ARGV[2] as in begin.lua; the values as in beside.lua.
-- ARGV[3] and on, one request each, with one change or more: operation (1: 0 read, 1 reset, 2
--   refund, 3 grant, 4 take-back, 5 take-back of hits from a grant, 6 return of a loan; plus 64 if
--   entries are recorded, plus 128 if the limit keeps holds), algorithm (1), hits (4), duration of
--   the grant in us, or the instant of the charge (7); the entries, as in decide.lua; of a
--   take-back what the reply to the charge had for it, with a length prefix (2); of a return the
--   time in us from the charge in which it is accepted (7); the fields of holds.lua if the limit
--   keeps holds; the algorithm's parameters.
--   The part of a reply for a take-back: the fields that holds.lua returns for it if the limit
--   keeps holds; then, unless that is too long, 1 or 2 (1), if it is 2 a digest of the value with
--   the charge (16), and the value without it, empty if there was none.
-- Reply   of an operator's change: 3 (1); verdict (1: as in decide.lua); if that is 1, the state
--   before and after: instant (7), remaining hits of a grant (7), the instant at which they expire
--   (7), windows (1), for each: counted hits (7), remaining hits (7), reset_after (7), time until
--   one hit fits (7), both in us, 2^55 if absent. Of take-backs: 5 (1), and for each the verdict
--   (1) and 13 bytes without meaning; or of a return without an effect 2 (1), 1 if the loan has been
--   returned, 2 if it is late (5), and 15 bytes without meaning. Or 4 as in decide.lua.
local RESETS, REFUNDS, GRANTS, TAKES_BACK, TAKES_BACK_OF_GRANT, RETURNS = 1, 2, 3, 4, 5, 6
local RETURNED, LATE = 1, 2
local DONE = 1
local with_data, byte = beside(), string.byte
-- Each write sets the time to live.
renews = true

-- Returns the state of a check's counter.
local function look(check)
  local left, gone_at = 0, 0
  if check.value then
    left, gone_at = select(3, with_data.split(check.value))
  end
  if left == 0 or check.instant >= gone_at then
    left, gone_at = 0, 0
  end
  usages = {}
  permit_operation, permit_id = 0, ''
  judged(check.algorithm, check.at, check.value, 1, DENIED_REPORT)
  local found = pack('>I7I7I7B', check.instant, left, gone_at, #usages) .. table.concat(usages)
  usages = nil
  return found
end

-- Returns the time until which a value matters.
local function matters_until(check, value)
  permit_operation, permit_id, renews = 0, '', true
  return value and select(5, judged(check.algorithm, check.at, value, 0, DENIED_REPORT)) or 0
end

-- Returns the instant of a value; no value if it cannot be read, or nil and the instant if that is
-- in none of the calendar windows that were sent.
local function instant_of(check, value)
  permit_operation, permit_id = 0, ''
  local _, instant, later = judged(check.algorithm, check.at, value, 0, 0)
  return instant, not instant and later or nil
end

-- Resets the counter to unused, and its clock to this server's. Charges made before are not taken
-- back from later charges: those ahead of the clock neither. Holds of the value before the reset do
-- not count.
local function reset(check)
  if check.has_hold then
    call('DEL', check.hold_key)
  end
  if not check.value then
    return nil
  end
  local matters = max(matters_until(check, check.value), check.own and check.own.latest or 0)
  if matters <= now then
    check.value = false
    local answer = call('DEL', check.key)
    return type(answer) == 'table' and answer.err
  end
  local unused = with_data.unused(check.algorithm, check.at)
  check.value = with_data.joined(unused, '', 0, 0, 0, now, matters)
  return save(check.key, check.value, matters)
end

-- Writes a new value, and the holds of the counter. Returns the error, if any.
local function write(check, value, lives_until, id, record)
  check.value = value
  if check.has_hold then
    return holds.write(check.own, value, lives_until, id, record)
  end
  return save(check.key, value, lives_until)
end

-- Its instant differs from that of any earlier grant or reset, so that hits taken from another
-- grant are not returned to it.
local function grant(check)
  local own, tallies, had, gone_at, granted_at, reset_at, reset_until =
    with_data.split(check.value or with_data.unused(check.algorithm, check.at))
  if check.hits == 0 and (had == 0 or check.instant >= gone_at) then
    return nil
  end
  granted_at = max(check.instant, max(granted_at, reset_at) + 1)
  if granted_at >= reset_until then
    reset_at, reset_until = 0, 0
  end
  local left, ends = check.hits, granted_at + check.length
  if left == 0 or check.length == 0 then
    left, ends = 0, 0
  end
  if not check.value and left == 0 then
    return nil
  end
  local value = with_data.joined(own, tallies, left, ends, left > 0 and granted_at or 0, reset_at, reset_until)
  if check.has_hold then
    holds.extend(check.own, 0)
  end
  return write(check, value, matters_until(check, value))
end

-- Takes hits back for a caller, newest first. Returns the error, if any.
local function refund(check)
  local new, lives_until, _
  if check.has_hold then
    new, lives_until = select(10, holds.judge(check.own, check.algorithm, check.fields, check.hits, REFUND))
  else
    _, _, _, new, lives_until = judged(check.algorithm, check.at, check.value, check.hits, REFUND)
  end
  return new and write(check, new, lives_until)
end

-- Of the current request, by key: true if no write followed any of its charges, and true if the
-- value without them was restored.
local untouched, restored

-- Returns true if no write followed the charge. One without a digest is repeated, and the
-- result compared: a digest would add cost to every charge.
local function is_untouched(check)
  local current = with_data.bare(check.value)
  if check.digest then
    if check.has_hold then
      current = holds.more().state(check.own, current, holds.more().stored_record(check.own, check.id))
    end
    return string.sub(redis.sha1hex(current), 1, 16) == check.digest
  end
  local before, clock = check.before ~= '' and check.before, now
  now = check.length
  local _, _, _, new = judged(check.algorithm, check.at, before, check.hits, BOTH)
  now = clock
  return with_data.bare(new) == current
end

-- Puts the counter back to the value without a charge, but with the tallies of the current one,
-- less those of the charge. Returns the error, if any.
local function restore(check)
  local value, tallies, charged, _ = check.value, '', nil, nil
  if check.has_hold and check.id ~= '' then
    charged = holds.more().stored_record(check.own, check.id)
  end
  if restored[check.key] and not value then
    return nil
  elseif not restored[check.key] then
    _, tallies = with_data.split(value)
    value = check.before
    if value == '' then
      -- Records of holds may outlive a value.
      local has_data = tallies ~= '' or check.has_hold and check.old_head ~= ''
      value = has_data and with_data.unused(check.algorithm, check.at)
    end
    value = value and with_data.with_tallies(value, tallies)
    if check.has_hold then
      holds.more().restore(check.own, value and check.old_head or '')
    end
  elseif check.has_hold then
    holds.extend(check.own, 0)
  end
  restored[check.key] = true
  if not value then
    local answer = call('DEL', check.key)
    return type(answer) == 'table' and answer.err
  end
  if check.entries then
    value = with_data.with_hits(value, check.entries, -check.hits, 0)
  end
  -- The field of no ID is the head.
  local record = check.old_record
  if check.id == '' then
    record = nil
  elseif check.has_hold then
    record = record ~= '' and record
    holds.more().forget_whole(check.own, check.id, charged, record)
  end
  return write(check, value, matters_until(check, value), check.id, record)
end

-- Takes a charge back, with the tallies of its entries. If no write followed, restores the
-- value without it, so that no hits are lost if the clock steps back. Returns the error, if any.
local function take_back(check)
  local of_grant, hits, id = check.operation == TAKES_BACK_OF_GRANT, check.hits, check.id
  if untouched[check.key] then
    return restore(check)
  end
  local new, lives_until, record, _
  charged_at = check.length
  if check.has_hold then
    new, lives_until, record =
      holds.more().take_back(check.own, check.algorithm, check.at, hits, charged_at, of_grant, id, check.expires, check.expired_before)
  elseif charged_at <= check.instant then
    _, _, _, new, lives_until = judged(check.algorithm, check.at, check.value, hits, TAKE_BACK, nil, of_grant)
  end
  if new and check.entries then
    new = with_data.with_hits(new, check.entries, -hits, 0)
  end
  return new and write(check, new, lives_until, id, record)
end

-- Takes the unused hits of a loan back, if it is returned for the first time and in time. Returns
-- the error, if any, and the reason if it has no effect.
local function return_loan(check)
  local ends = check.length + check.kept_for
  if now < check.length or now >= ends then
    return nil, LATE
  end
  -- Kept for longer than it is accepted, since the clock may step back.
  local ms = max(math.ceil((ends - now + GRACE) / 1000), least_ms)
  local kept = call('SET', check.loan_key, '', 'NX', 'PX', string.format('%.0f', ms))
  if type(kept) == 'table' and kept.err then
    return kept.err
  elseif not kept then
    return nil, RETURNED
  end
  return check.hits > 0 and take_back(check) or nil
end

local changes = { [RESETS] = reset, [REFUNDS] = refund, [GRANTS] = grant, [TAKES_BACK] = take_back }
changes[TAKES_BACK_OF_GRANT] = take_back
changes[RETURNS] = return_loan

local function next_key()
  before = before + 1
  return KEYS[before]
end

-- Reads what the reply to a charge had for its take-back.
local function read_undo(check, undo)
  local place = 1
  if undo == '' then
    return
  elseif check.has_hold then
    check.expires, check.expired_before, check.old_head, check.old_record, place =
      unpack_from('>I7I7I2c0I2c0', undo)
  end
  local kind = byte(undo, place)
  if kind == 2 then
    check.digest = string.sub(undo, place + 1, place + 16)
    place = place + 16
  end
  check.before = kind and string.sub(undo, place + 1)
end

-- Reads the counter of a change.
local function load(check)
  local is_read = true
  check.instant = nil
  if check.has_hold then
    check.own = holds.load(check.algorithm, check.key, check.hold_key)
    is_read, check.value = check.own, check.own and check.own.value
  else
    check.value = call('GET', check.key)
  end
  if is_read then
    check.instant, check.later = instant_of(check, check.value)
  end
end

-- Reads the change at `at` of the text, and its counter. Returns it, and the position after it.
local function read(at)
  local check, after, _ = { key = next_key() }, nil, nil
  check.operation, check.algorithm, check.hits, check.length, at = unpack_from('>BBI4I7', text, at)
  check.has_hold = check.operation >= HOLDS
  check.operation = check.has_hold and check.operation - HOLDS or check.operation
  if check.operation >= RECORDS then
    check.operation, check.entries, at = check.operation - RECORDS, at + 4, at + 4 + unpack_from('>I4', text, at)
  end
  check.expires, check.expired_before = 0, 0
  if check.operation >= TAKES_BACK then
    local undo
    undo, at = unpack_from('>I2c0', text, at)
    read_undo(check, undo)
  end
  if check.operation == RETURNS then
    check.kept_for, at = unpack_from('>I7', text, at)
  end
  if check.has_hold then
    check.hold_key, check.fields = next_key(), at
    _, _, _, check.id, at = unpack_from('>BI7BBc0', text, at)
  end
  if check.operation == RETURNS then
    check.loan_key = next_key()
  end
  check.at = at
  after = judges[check.algorithm](at, false, 0, 0)
  load(check)
  return check, after
end

-- Performs a change. Returns the verdict, and the reason if it has no effect.
local function change(check)
  local err, unchanged = changes[check.operation](check)
  return err and failure(err) or DONE, unchanged
end

-- Performs an operator's change. Returns the reply.
local function amend(check)
  local found, verdict = look(check), DONE
  if changes[check.operation] then
    verdict = change(check)
  end
  if verdict ~= DONE then
    return pack('BB', 3, verdict)
  end
  check.instant = instant_of(check, check.value) or check.instant
  return pack('BB', 3, DONE) .. found .. look(check)
end

-- Reads all changes of a request. Returns them, and the instant of a counter that is in none of the
-- calendar windows that were sent, if any.
local function read_all()
  local place, checks, later = 1, {}, nil
  untouched, restored = {}, {}
  repeat
    local check
    check, place = read(place)
    later = later or check.later
    if check.operation == RESETS then
      later = later or select(2, instant_of(check, false))
    end
    if check.operation >= TAKES_BACK then
      untouched[check.key] = untouched[check.key] ~= false and check.instant and check.before and check.value
        and (check.digest or check.operation == TAKES_BACK) and is_untouched(check) or false
    end
    checks[#checks + 1] = check
  until place > #text
  return checks, later
end

for i = 3, #ARGV do
  text = ARGV[i]
  local checks, later = read_all()
  if later then
    reply[#reply + 1] = pack('>BI7I7', BEYOND, now, later)
  else
    local takes_back = byte(text) % RECORDS >= TAKES_BACK
    reply[#reply + 1] = takes_back and JUDGED or ''
    local changed = {}
    for _, check in ipairs(checks) do
      if changed[check.key] then
        load(check)
      end
      changed[check.key] = true
      if not takes_back then
        reply[#reply + 1] = check.instant and amend(check) or pack('BB', 3, UNREADABLE)
      else
        local verdict, unchanged = UNREADABLE, nil
        if check.instant then
          verdict, unchanged = change(check)
        end
        reply[#reply + 1] = unchanged and pack('>BI5BI7I7', DENIED, unchanged, 0, 0, 0)
          or pack('>BI5BI7', verdict, 0, 0, 0)
      end
    end
  end
end
return refused and redis.error_reply(refused) or table.concat(reply)
