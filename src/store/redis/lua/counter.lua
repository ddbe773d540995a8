-- counter: a counter of whatever algorithm as it stands in its key, with what stands beside the algorithm's state: tallies, a
-- grant, a reset. The same steps as src/algorithm/amend.rs.
--
-- ARGV[1] now in us since the epoch; empty: this server's clock.
-- ARGV[2] how long a counter is kept at least, in ms.
-- Values  tag: 16 + 2 * algorithm, 1 more where wide, 32 more where tallies follow, 64 more where a grant or a reset does; the tallies
--   after their length (4), each an entry after its length (2), hits charged (7), hits denied (7); hits that a grant has left (7),
--   the instant at which they are gone (7), that at which it was made (7), the instant of a reset (7), and the one from which no
--   charge before it would count any more (7); the algorithm's state. A key lives for a minute after its counter stops mattering.
local TALLIED, EXTENDED = 32, 64
-- What stands beside a state, as `extended`: its places in the order of the value. It is never changed but replaced, so that a
-- copy of a state may share it.
local LEFT, GONE_AT, GRANTED_AT, RESET_AT, RESET_UNTIL = 1, 2, 3, 4, 5
-- By their keys.
local counters = {}

local now = tonumber(ARGV[1])
if not now then
  local clock = redis.call('TIME')
  now = clock[1] * 1000000 + clock[2]
end

-- The state and the tallies, packed; nil where the value is none of this algorithm.
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

-- The counter of a check; without a state where its value cannot be read.
local function load_counter(check)
  local counter = counters[check.key]
  if counter then
    return counter
  end
  counter = { algorithm = check.algorithm, tallies = '' }
  counters[check.key] = counter
  local value = redis.pcall('GET', check.key)
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

-- The later of the instants of the grant and the reset; 0 where there is neither.
local function marked(state)
  local extended = state.extended
  return extended and math.max(extended[GRANTED_AT], extended[RESET_AT]) or 0
end

local function instant(state)
  return math.max(now, state.last, marked(state))
end

-- The reply to a request about a counter at whose instant no window of its calendar is known: 4 (1), this server's now (7), the
-- instant (7). Nothing is written then.
local BEYOND = 4
local function beyond(check, state)
  local is_beyond = check.algorithm.is_beyond
  if is_beyond and is_beyond(check.limit, instant(state)) then
    return pack('>BI7I7', BEYOND, now, instant(state))
  end
end

-- Hits that an extended state has granted.
local function granted(state, at)
  return at < state.extended[GONE_AT] and state.extended[LEFT] or 0
end

-- Drops from an extended state what has no meaning any more; with every write of it. A grant has none at its end: what was taken of
-- it may come back until then.
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

-- Writes a counter to its key, or deletes that where there is nothing to tell. Gives the error, if there is one.
local function save(key, counter)
  local check, state = counter.writer, counter.state
  local matters_until, extended = check.algorithm.matters_until(check.limit, state), state.extended
  if extended then
    matters_until = math.max(matters_until, extended[GONE_AT], extended[RESET_UNTIL])
  end
  local ms = math.max(math.ceil((math.max(matters_until - now, 0) + GRACE) / 1000), tonumber(ARGV[2]))
  local answer
  if state.exists or counter.tallies ~= '' then
    local value = value_of(check, state, counter.tallies)
    answer = redis.pcall('SET', key, value, 'PX', string.format('%.0f', ms))
  else
    answer = redis.pcall('DEL', key)
  end
  return type(answer) == 'table' and answer.err or nil
end

