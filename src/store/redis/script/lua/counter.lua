-- counter: the value of a counter of any algorithm, with the data stored beside the algorithm's state: tallies, a grant, a reset.
-- The same steps as src/algorithm/amend.rs.
--
-- ARGV[1] now in us since the epoch; empty: this server's clock.
-- ARGV[2] minimum time to live of a counter, in ms.
-- Values  tag: 16 + 2 * algorithm, plus 1 if wide, 32 if tallies follow, 64 if a grant or a reset follows; the tallies with a
--   length prefix (4), for each: entry with a length prefix (2), charged hits (7), denied hits (7); remaining hits of a grant (7),
--   the instant at which they expire (7), the instant of the grant (7), the instant of a reset (7), and the instant from which no
--   charge before the reset would count (7); the algorithm's state. A key lives for a minute after its counter stops mattering.
local TALLIED, EXTENDED = 32, 64
-- Indices of the fields of `extended`, the data beside a state, in the order of the value. The table is replaced, never changed,
-- so that a copy of a state may share it.
local LEFT, GONE_AT, GRANTED_AT, RESET_AT, RESET_UNTIL = 1, 2, 3, 4, 5
-- Loaded counters, by key.
local counters = {}

-- Returns the state and the packed tallies; nil if another algorithm wrote the value.
local function read_value(check, value)
  local tag, at, tallies, extended = string.byte(value, 1), 2, ''
  local is_extended = tag >= EXTENDED
  tag = tag - (is_extended and EXTENDED or 0)
  if tag >= TALLIED then
    tallies, at = unpack_from('>I4c0', value, at)
    tag = tag - TALLIED
  end
  if is_extended then
    extended = { unpack_from('>I7I7I7I7I7', value, at) }
    at = extended[6]
  end
  if tag == check.tag or tag == check.tag + 1 then
    local state = check.algorithm.read(check.limit, at == 2 and value or string.sub(value, at - 1), tag == check.tag + 1)
    state.exists, state.extended = true, extended
    return state, tallies
  end
end

-- Returns the counter of a check; without a state if its value cannot be read.
local function load_counter(check)
  local counter = counters[check.key]
  if counter then
    return counter
  end
  counter = { algorithm = check.algorithm, tallies = '' }
  counters[check.key] = counter
  local value = redis.pcall('GET', check.key)
  counter.value = value
  if not value then
    counter.state = check.algorithm.unused(check.limit)
  elseif type(value) == 'string' then
    local read, state, tallies = pcall(read_value, check, value)
    if read then
      counter.state, counter.tallies = state, tallies
    end
  end
  return counter
end

-- Returns true if records of holds are beside the value. Slots are part of it.
local function has_records(check)
  return check.hold and not check.algorithm.take
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

local function value_of(check, state, tallies)
  local body, wide = check.algorithm.write(check.limit, state)
  local tag, extended = check.tag + (wide and 1 or 0), state.extended
  if extended then
    body = pack('>I7I7I7I7I7', unpack(extended, LEFT, RESET_UNTIL)) .. body
    tag = tag + EXTENDED
  end
  if tallies and tallies ~= '' then
    return pack('>BI4', tag + TALLIED, #tallies) .. tallies .. body
  end
  return pack('B', tag) .. body
end

-- Returns the later of the instants of the grant and the reset; 0 if there is neither.
local function marked(state)
  local extended = state.extended
  return extended and math.max(extended[GRANTED_AT], extended[RESET_AT]) or 0
end

local function instant(state)
  return math.max(now, state.last, marked(state))
end

-- Returns the reply to a request if no calendar window contains the counter's instant: 4 (1), this server's now (7), the
-- instant (7). Nothing is written in this case.
local BEYOND = 4
local function beyond(check, state)
  local is_beyond = check.algorithm.is_beyond
  if is_beyond and is_beyond(check.limit, instant(state)) then
    return pack('>BI7I7', BEYOND, now, instant(state))
  end
end

-- Returns the remaining hits of the grant of an extended state.
local function granted(state, at)
  return at < state.extended[GONE_AT] and state.extended[LEFT] or 0
end

-- Removes expired parts of an extended state, on every write. A grant expires at its end, even if no hits remain: hits taken from
-- it may be returned until then.
local function settle_extended(state, at)
  local left, gone_at, granted_at, reset_at, reset_until = unpack(state.extended)
  if at >= gone_at then
    left, gone_at, granted_at = 0, 0, 0
  end
  if at >= reset_until then
    reset_at, reset_until = 0, 0
  end
  state.extended = (gone_at > 0 or reset_until > 0) and { left, gone_at, granted_at, reset_at, reset_until } or nil
end

-- Takes hits back for a caller, newest first. Returns true if it took any.
local function refund(check, state, at)
  if check.hits == 0 then
    return false
  elseif check.hold then
    return holds.refund(check, state, at)
  end
  return check.algorithm.refund(check.limit, state, check.hits, at)
end

-- Writes a counter to its key, or deletes the key if there is nothing to store. Returns the error, if any.
local function save(key, counter)
  local check, state = counter.writer, counter.state
  local matters_until, extended = check.algorithm.matters_until(check.limit, state), state.extended
  if extended then
    matters_until = math.max(matters_until, extended[GONE_AT], extended[RESET_UNTIL])
  end
  if check.hold and state.holds then
    matters_until = math.max(matters_until, holds.lives_until(state.holds, state.last))
  end
  local ms = math.max(math.ceil((math.max(matters_until - now, 0) + GRACE) / 1000), tonumber(ARGV[2]))
  local answer
  if state.exists or counter.tallies ~= '' then
    local value = value_of(check, state, counter.tallies)
    ms = string.format('%.0f', ms)
    -- The holds first: a value without them would be one of a limit without holds.
    local err = check.hold and state.holds and holds.save(state.holds, value, ms)
    if err then
      return err
    end
    answer = redis.pcall('SET', key, value, 'PX', ms)
    if check.hold and state.holds then
      holds.forget(state.holds)
    end
  else
    answer = redis.pcall('DEL', key)
    if check.hold and state.holds then
      redis.pcall('DEL', state.holds.key)
    end
  end
  return type(answer) == 'table' and answer.err or nil
end

