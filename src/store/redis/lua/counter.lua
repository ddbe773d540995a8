-- counter: a counter of whatever algorithm as it stands in its key, with what stands beside the algorithm's state: tallies, a
-- grant, a reset. The same steps as src/algorithm/amend.rs.
--
-- ARGV[1] now in us since the epoch; empty: this server's clock.
-- ARGV[2] how long a counter is kept at least, in ms.
-- Values  tag: 16 + 2 * algorithm, 1 more where wide, 32 more where tallies follow, 64 more where a grant or a reset does; the tallies
--   after their length (4), each an entry after its length (2), hits charged (7), hits denied (7); hits that a grant has left (7),
--   the instant at which they are gone (7), the instant of a reset (7), and the one from which no charge before it would count any
--   more (7); the algorithm's state. A key lives for a minute after its counter stops mattering.
local TALLIED, EXTENDED = 32, 64

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
    extended = {}
    extended.left, extended.gone_at, extended.reset_at, extended.reset_until, at = unpack_from('>I7I7I7I7', value, at)
  end
  if tag == check.tag or tag == check.tag + 1 then
    local state = check.algorithm.read(check.limit, at == 2 and value or string.sub(value, at - 1), tag == check.tag + 1)
    state.exists, state.extended = true, extended
    return state, tallies
  end
end

-- The counter of a check as it stands in its key; without a state where it cannot be read.
local function read_counter(check)
  local counter = { algorithm = check.algorithm, tallies = '' }
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
    body = pack('>I7I7I7I7', extended.left, extended.gone_at, extended.reset_at, extended.reset_until) .. body
    tag = tag + EXTENDED
  end
  if tallies and tallies ~= '' then
    return pack('>BI4', tag + TALLIED, #tallies) .. tallies .. body
  end
  return pack('B', tag) .. body
end

local function copy_state(check, state)
  local copy, extended = check.algorithm.copy(state), state.extended
  if extended then
    copy.extended = {
      left = extended.left, gone_at = extended.gone_at, reset_at = extended.reset_at, reset_until = extended.reset_until,
    }
  end
  return copy
end

local function instant(state)
  return math.max(now, state.last, state.extended and state.extended.reset_at or 0)
end

-- Hits that are granted.
local function granted(state, at)
  local extended = state.extended
  return extended and at < extended.gone_at and extended.left or 0
end

-- Becomes plain where nothing beside the state has a meaning any more. With every write.
local function settle_state(state, at)
  local extended = state.extended
  if extended then
    if granted(state, at) == 0 then
      extended.left, extended.gone_at = 0, 0
    end
    if at >= extended.reset_until then
      extended.reset_at, extended.reset_until = 0, 0
    end
    if extended.left == 0 and extended.reset_until == 0 then
      state.extended = nil
    end
  end
end

local function allows(check, state, hits, at)
  if check.algorithm.allows(check.limit, state, hits, at) then
    return true
  end
  local left = granted(state, at)
  return left > 0 and hits <= left
end

-- Says whether the hits were taken of a grant.
local function charge(check, state, hits, at)
  local of_grant = false
  if state.extended then
    local left = granted(state, at)
    of_grant = left > 0 and hits <= left and not check.algorithm.allows(check.limit, state, hits, at)
  end
  if of_grant then
    state.extended.left = state.extended.left - hits
  else
    check.algorithm.charge(check.limit, state, hits, at)
  end
  settle_state(state, at)
  return of_grant
end

local function refund(check, state, hits, at)
  local took = hits > 0 and check.algorithm.refund(check.limit, state, hits, at)
  if took then
    settle_state(state, at)
  end
  return took
end

-- Undoes a charge by what is known of it alone.
local function take_back(check, state, at)
  local extended, took = state.extended, false
  if extended and extended.reset_until > 0 and check.charged_at <= extended.reset_at then
    return false
  elseif check.of_grant then
    took = granted(state, at) > 0
    if took then
      extended.left = extended.left + check.hits
    end
  else
    took = check.algorithm.take_back(check.limit, state, check.hits, check.charged_at, at)
  end
  if took then
    settle_state(state, at)
  end
  return took
end

local function matters_until(check, state)
  local until_then, extended = check.algorithm.matters_until(check.limit, state), state.extended
  return extended and math.max(until_then, extended.gone_at, extended.reset_until) or until_then
end

-- Writes a counter to its key, or deletes that where there is nothing to tell. An error is nil, or the reply.
local function save(key, counter)
  local check, state = counter.writer, counter.state
  local us = math.max(matters_until(check, state) - now, 0) + GRACE
  local ms = math.max(math.ceil(us / 1000), tonumber(ARGV[2]))
  local answer
  if state.exists or counter.tallies ~= '' then
    local value = value_of(check, state, counter.tallies)
    answer = redis.pcall('SET', key, value, 'PX', string.format('%.0f', ms))
  else
    answer = redis.pcall('DEL', key)
  end
  return type(answer) == 'table' and answer.err or nil
end

