-- concurrency: at most in_flight hits at one time, as slots that end. The same steps as
-- src/algorithm/concurrency.rs.
--
-- Parameters: in_flight (4).
-- Value: tag, last us (7), slots (2), then for each in the order in which they were taken: the
--   instant at which it was taken (7), the instant at which it ends (7), hits (4), ID with a length
--   prefix (1).
--
-- A counter may have 10,000 slots. They stay packed, since a table for each would take ten times as
-- long, and a step reads them once.
do
  local byte, sub, max = string.byte, string.sub, math.max
  -- Bytes of a slot without its ID, and offsets in it.
  local SLOT, ENDS, LENGTH = 19, 7, 18
  -- An end relative to now and hits in one exact number: TTLs are below 2^37 us, hits below 2^14.
  local HITS = 16384

  -- Finds the slots that have not ended by `now`: their text and number, hits, latest end, and true
  -- if they end in the order in which they were taken.
  local function look(state, now)
    if state.at == now then
      return
    end
    local text, parts, place, from = state.text, {}, 1, 1
    local count, used, latest, in_order = 0, 0, 0, true
    for _ = 1, state.count do
      local ends_at, hits, length = unpack_from('>I7I4B', text, place + ENDS)
      local after = place + SLOT + length
      if ends_at > now and hits > 0 then
        count, used, in_order = count + 1, used + hits, in_order and ends_at >= latest
        latest = max(latest, ends_at)
      else
        if place > from then
          parts[#parts + 1] = sub(text, from, place - 1)
        end
        from = after
      end
      place = after
    end
    if place ~= #text + 1 then
      error('slots are cut short')
    end
    parts[#parts + 1] = sub(text, from)
    state.live, state.live_count, state.used = table.concat(parts), count, used
    state.latest, state.in_order, state.at = latest, in_order, now
  end

  -- Sets the slots. Those that have ended are removed only by a write: an earlier clock counts them.
  local function write(state, text, count, now)
    state.text, state.count, state.last, state.at = text, count, now, nil
    state.live = nil
  end

  -- Returns the places of the slots of an ID, oldest first.
  local function places_of(text, id)
    local places, place, final = {}, 1, byte(id, -1)
    while place <= #text do
      local length = byte(text, place + LENGTH)
      local after = place + SLOT + length
      -- A substring costs more than its last byte.
      if length == #id and (length == 0 or byte(text, after - 1) == final and sub(text, place + SLOT, after - 1) == id) then
        places[#places + 1] = place
      end
      place = after
    end
    return places
  end

  local function slot_at(text, place)
    local taken_at, ends_at, hits, length = unpack_from('>I7I7I4B', text, place)
    return taken_at, ends_at, hits, place + SLOT + length
  end

  -- Removes hits of one slot, and the slot with its last hit.
  local function take_from(state, place, hits, now)
    local text = state.live
    local taken_at, ends_at, held, after = slot_at(text, place)
    local rest, count = '', state.live_count - 1
    if held > hits then
      rest = pack('>I7I7I4', taken_at, ends_at, held - hits) .. sub(text, place + LENGTH, after - 1)
      count = count + 1
    end
    local used, latest, in_order = state.used - math.min(held, hits), state.latest, state.in_order
    write(state, sub(text, 1, place - 1) .. rest .. sub(text, after), count, now)
    if rest ~= '' or ends_at < latest then
      state.live, state.live_count, state.used = state.text, count, used
      state.latest, state.in_order, state.at = latest, in_order, now
    end
  end

  -- Returns the time until at most `room` hits are in flight.
  local function fits_after(state, room, now)
    local used, text, place = state.used, state.live, 1
    if used <= room then
      return 0
    elseif state.in_order then
      local _, ends_at, hits
      while used > room do
        _, ends_at, hits, place = slot_at(text, place)
        used = used - hits
      end
      return ends_at - now
    end
    local ends, count = {}, 0
    while place <= #text do
      local ends_at, hits, length = unpack_from('>I7I4B', text, place + ENDS)
      count, place = count + 1, place + SLOT + length
      ends[count] = (ends_at - now) * HITS + hits
    end
    table.sort(ends)
    for i = 1, count do
      local hits = ends[i] % HITS
      used = used - hits
      if used <= room then
        return (ends[i] - hits) / HITS
      end
    end
  end

  algorithms[5] = {
    parameters = function(text, at)
      local limit = { period = 0 }
      limit.limit, at = unpack_from('>I4', text, at)
      limit.windows = { limit }
      return limit, at
    end,

    unused = function()
      return { last = 0, text = '', count = 0 }
    end,

    read = function(_, value)
      local state, at = {}
      state.last, state.count, at = unpack_from('>I7I2', value, 2)
      state.text = sub(value, at)
      look(state, max(now, state.last))
      return state
    end,

    write = function(_, state)
      return pack('>I7I2', state.last, state.count) .. state.text, false
    end,

    copy = function(state)
      return { last = state.last, text = state.text, count = state.count }
    end,

    allows = function(limit, state, hits, now)
      look(state, now)
      return limit.limit > 0 and state.used + hits <= limit.limit
    end,

    -- Takes a slot, even without room.
    take = function(state, id, hits, ends_at, now)
      look(state, now)
      local count, used, latest = state.live_count + 1, state.used + hits, state.latest
      local in_order = state.in_order and ends_at >= latest
      write(state, state.live .. pack('>I7I7I4Bc0', now, ends_at, hits, #id, id), count, now)
      state.live, state.live_count, state.used = state.text, count, used
      state.latest, state.in_order, state.at = max(latest, ends_at), in_order, now
    end,

    -- Ends the oldest slot of an ID. Returns true if there is one.
    finish = function(state, id, now)
      look(state, now)
      local place = places_of(state.live, id)[1]
      if place then
        take_from(state, place, math.huge, now)
      end
      return place ~= nil
    end,

    -- Lets all slots of an ID end at an instant. Returns true if there are any.
    extend = function(state, id, ends_at, now)
      look(state, now)
      local places, parts, from, packed = places_of(state.live, id), {}, 1, pack('>I7', ends_at)
      for i, place in ipairs(places) do
        parts[2 * i - 1], parts[2 * i] = sub(state.live, from, place + ENDS - 1), packed
        from = place + ENDS + #packed
      end
      if #places > 0 then
        parts[#parts + 1] = sub(state.live, from)
        write(state, table.concat(parts), state.live_count, now)
      end
      return #places > 0
    end,

    -- Returns the hits of the slots of an ID.
    open = function(state, id, now)
      look(state, now)
      local sum = 0
      for _, place in ipairs(places_of(state.live, id)) do
        local _, _, hits = slot_at(state.live, place)
        sum = sum + hits
      end
      return sum
    end,

    -- Refunds hits of the newest slots, whatever their IDs.
    refund = function(_, state, hits, now)
      look(state, now)
      if hits == 0 or state.used == 0 then
        return false
      end
      -- The first hits stay: of the slots up to the one that has the last of them.
      local text, place, count, left = state.live, 1, 0, max(state.used - hits, 0)
      local kept = ''
      while left > 0 do
        local held, length = unpack_from('>I4B', text, place + ENDS + ENDS)
        local after = place + SLOT + length
        count = count + 1
        if held > left then
          kept = sub(text, place, place + ENDS + ENDS - 1) .. pack('>I4', left) .. sub(text, place + LENGTH, after - 1)
          break
        end
        left, place = left - held, after
      end
      write(state, sub(text, 1, place - 1) .. kept, count, now)
      return true
    end,

    -- Undoes what is left of the slot of a charge.
    take_back = function(_, state, hits, at, now, id)
      look(state, now)
      local places, found = places_of(state.live, id or ''), nil
      for i = #places, 1, -1 do
        local taken_at, _, held = slot_at(state.live, places[i])
        if taken_at == at then
          found = found or places[i]
          -- Of several slots of one instant the whole one: a refund may have taken from another.
          if held == hits then
            found = places[i]
            break
          end
        end
      end
      if found then
        take_from(state, found, hits, now)
      end
      return found ~= nil
    end,

    report = function(limit, state, _, denied, now)
      look(state, now)
      local retry = denied and denied <= limit.limit and fits_after(state, limit.limit - denied, now) or nil
      return max(limit.limit - state.used, 0), max(state.latest - now, 0), retry
    end,

    counts = function(_, state, _, now)
      look(state, now)
      return state.used
    end,

    matters_until = function(_, state)
      look(state, state.last)
      return max(state.last, state.latest)
    end,
  }
end
