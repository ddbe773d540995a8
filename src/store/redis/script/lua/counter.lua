-- counter: the values of counters, each with the holds beside it.
--
-- A state has the fields `value`, false if there is none, and `at`, its latest instant or the server's
-- time if that is later; `lives_until` after it was judged; `holds`, if they are loaded. A copy of it may
-- share them all but the holds.
local with_data = beside()
local split, joined = with_data.split, with_data.joined
-- Loaded counters, by key.
local counters = {}
-- The numbers of gcra and concurrency.
local GCRA, SLOTS = 4, 6
-- Each write sets the time to live.
renews = true

-- Judges hits by a state, with an operation on slots if it is given, and writes them to it. Returns
-- true if they are allowed, true if the algorithm's state has changed, the report of the binding window,
-- the instant of the grant if the hits are from one, and the hits of the slots of the check's ID.
local function judge(check, state, hits, writes, operation)
  if check.number == SLOTS then
    local hold = check.hold
    slot_operation, slot_id, slot_ttl = operation or 0, hold and hold.id or '', hold and hold.ttl or 0
  end
  text, charged_at = check.text, check.charged_at
  local _, at, allowed, new, lives_until, left, reset, retry, window, wrote, own =
    with_data.judge(check.number, check.parameters, state.value, hits, writes, nil, check.of_grant)
  state.value, state.lives_until = new or state.value, lives_until or state.lives_until
  return allowed, wrote > 0, left, reset, retry, window, wrote == 24 and at or nil, own
end

-- Sets the instant of a state. Returns false if its value cannot be read, and true if it is in none of
-- the calendar windows that were sent.
local function place(check, state)
  text = check.text
  local _, at, later = with_data.judge(check.number, check.parameters, state.value, 0, 0)
  state.at = at or later
  return state.at ~= nil, not at
end

-- Returns the state of a value; nothing if it cannot be read.
local function state_of(check, value)
  local state = { value = value }
  return place(check, state) and state or nil
end

-- Returns the state of a counter that does not exist.
local function unused_state(check)
  return state_of(check, false)
end

-- Returns the counter of a check; without a state if its value cannot be read.
local function load_counter(check)
  local counter = counters[check.key]
  if counter then
    return counter
  end
  local value = call('GET', check.key)
  local is_read = not value or type(value) == 'string' and #value > 0
  counter = { number = check.number, value = value, state = is_read and state_of(check, value) or nil }
  counters[check.key] = counter
  return counter
end

-- Returns true if records of holds are beside the value. Slots are part of it.
local function has_records(check)
  return check.hold and check.number ~= SLOTS
end

-- Loads the holds of a counter, of which an unreadable one is unreadable as a whole.
local function load_holds(check)
  local counter = check.counter
  if has_records(check) and counter.state and not counter.state.holds then
    local own = holds.load(check, counter.value)
    if own then
      counter.state.holds = own
    else
      counter.state = nil
    end
  end
end

-- Returns a copy of a state, which can be written without changing it.
local function copy_of(state)
  return {
    value = state.value, at = state.at, lives_until = state.lives_until, restored = state.restored,
    holds = state.holds and holds.copy(state.holds),
  }
end

-- Returns the reply to a request if no calendar window contains the counter's instant: 4 (1), this
-- server's now (7), the instant (7). Nothing is written in this case.
local BEYOND = 4
local function beyond(check, state)
  local _, is_beyond = place(check, state)
  if is_beyond then
    return pack('>BI7I7', BEYOND, now, state.at)
  end
end

-- Takes hits back for a caller, newest first. Returns true if it took any.
local function refund(check, state)
  if check.hits == 0 then
    return false
  elseif check.hold then
    return holds.refund(check, state)
  end
  local _, took = judge(check, state, check.hits, REFUND)
  return took
end

-- Returns the time until which a state matters.
local function matters_until(check, state)
  if state.value and not state.lives_until then
    judge(check, state, 0, DENIED_REPORT)
  end
  return state.lives_until or 0
end

-- Writes a counter to its key, or deletes the key if there is nothing to store. Returns the error, if
-- any.
local function save(key, counter)
  local check, state = counter.writer, counter.state
  local own, matters = check.hold and state.holds, matters_until(check, state)
  if own then
    matters = max(matters, holds.lives_until(own, state.at))
  end
  local ms = max(math.ceil((max(matters - now, 0) + GRACE) / 1000), tonumber(ARGV[2]))
  local answer
  if state.value then
    ms = string.format('%.0f', ms)
    -- The holds first: a value without them would be one of a limit without holds.
    local err = own and holds.save(own, state.value, ms)
    if err then
      return err
    end
    answer = call('SET', key, state.value, 'PX', ms)
    if own then
      holds.forget(own)
    end
  else
    answer = call('DEL', key)
    if own then
      call('DEL', own.key)
    end
  end
  return type(answer) == 'table' and answer.err or nil
end

