-- concurrency: at most in_flight hits at one time, as slots that end. The same steps as
-- src/algorithm/concurrency.rs.
--
-- Parameters: in_flight (4).
-- Value: tag, last us (7), slots (2), then for each in the order in which they were taken: the
--   instant at which it was taken (7), the instant at which it ends (7), hits (4), ID with a length
--   prefix (1).
do
  local function used(state, now)
    local sum = 0
    for _, slot in ipairs(state.slots) do
      sum = sum + (slot.ends_at > now and slot.hits or 0)
    end
    return sum
  end

  -- Removes the slots that have ended. Called only by a write: an earlier clock counts them.
  local function begin_write(state, now)
    local live = {}
    for _, slot in ipairs(state.slots) do
      if slot.ends_at > now and slot.hits > 0 then
        live[#live + 1] = slot
      end
    end
    state.slots, state.last = live, now
  end

  local function reduced(slot, hits)
    return { id = slot.id, hits = slot.hits - hits, taken_at = slot.taken_at, ends_at = slot.ends_at }
  end

  algorithms[5] = {
    parameters = function(text, at)
      local limit = { period = 0 }
      limit.limit, at = unpack_from('>I4', text, at)
      limit.windows = { limit }
      return limit, at
    end,

    unused = function()
      return { last = 0, slots = {} }
    end,

    read = function(_, text)
      local state, count, at = { slots = {} }
      state.last, count, at = unpack_from('>I7I2', text, 2)
      for i = 1, count do
        local slot = {}
        slot.taken_at, slot.ends_at, slot.hits, slot.id, at = unpack_from('>I7I7I4Bc0', text, at)
        state.slots[i] = slot
      end
      return state
    end,

    write = function(_, state)
      local parts = { pack('>I7I2', state.last, #state.slots) }
      for i, slot in ipairs(state.slots) do
        parts[i + 1] = pack('>I7I7I4Bc0', slot.taken_at, slot.ends_at, slot.hits, #slot.id, slot.id)
      end
      return table.concat(parts), false
    end,

    -- Slots are replaced, never changed, so that a copy of a state may share them.
    copy = function(state)
      local slots = {}
      for i, slot in ipairs(state.slots) do
        slots[i] = slot
      end
      return { last = state.last, slots = slots }
    end,

    allows = function(limit, state, hits, now)
      return limit.limit > 0 and used(state, now) + hits <= limit.limit
    end,

    -- Takes a slot, even without room.
    take = function(state, id, hits, ends_at, now)
      begin_write(state, now)
      state.slots[#state.slots + 1] = { id = id, hits = hits, taken_at = now, ends_at = ends_at }
    end,

    -- Ends the oldest slot of an ID. Returns true if there is one.
    finish = function(state, id, now)
      for i, slot in ipairs(state.slots) do
        if slot.ends_at > now and slot.id == id then
          table.remove(state.slots, i)
          begin_write(state, now)
          return true
        end
      end
      return false
    end,

    -- Lets all slots of an ID end at an instant. Returns true if there are any.
    extend = function(state, id, ends_at, now)
      local any = false
      for i, slot in ipairs(state.slots) do
        if slot.ends_at > now and slot.id == id then
          local extended = reduced(slot, 0)
          extended.ends_at = ends_at
          state.slots[i], any = extended, true
        end
      end
      if any then
        begin_write(state, now)
      end
      return any
    end,

    -- Returns the hits of the slots of an ID.
    open = function(state, id, now)
      local sum = 0
      for _, slot in ipairs(state.slots) do
        sum = sum + (slot.ends_at > now and slot.id == id and slot.hits or 0)
      end
      return sum
    end,

    -- Refunds hits of the newest slots, whatever their IDs.
    refund = function(_, state, hits, now)
      if hits == 0 or used(state, now) == 0 then
        return false
      end
      begin_write(state, now)
      for i = #state.slots, 1, -1 do
        local part = math.min(state.slots[i].hits, hits)
        state.slots[i], hits = reduced(state.slots[i], part), hits - part
      end
      begin_write(state, now)
      return true
    end,

    -- Undoes what is left of the slot of a charge.
    take_back = function(_, state, hits, at, now, id)
      local place
      for i = #state.slots, 1, -1 do
        local slot = state.slots[i]
        if slot.ends_at > now and slot.taken_at == at and slot.id == (id or '') then
          place = place or i
          -- Of several slots of one instant the whole one: a refund may have taken from another.
          if slot.hits == hits then
            place = i
            break
          end
        end
      end
      if place then
        local slot = state.slots[place]
        state.slots[place] = reduced(slot, math.min(slot.hits, hits))
        begin_write(state, now)
      end
      return place ~= nil
    end,

    report = function(limit, state, _, denied, now)
      local sum, reset, retry = used(state, now), 0, nil
      local ends = {}
      for _, slot in ipairs(state.slots) do
        if slot.ends_at > now then
          reset = math.max(reset, slot.ends_at - now)
          ends[#ends + 1] = slot
        end
      end
      if denied and denied <= limit.limit then
        local left, room = sum, limit.limit - denied
        retry = left <= room and 0 or nil
        table.sort(ends, function(one, other)
          return one.ends_at < other.ends_at
        end)
        for _, slot in ipairs(ends) do
          left = left - slot.hits
          if not retry and left <= room then
            retry = slot.ends_at - now
          end
        end
      end
      return math.max(limit.limit - sum, 0), reset, retry
    end,

    counts = function(_, state, _, now)
      return used(state, now)
    end,

    matters_until = function(_, state)
      local latest = state.last
      for _, slot in ipairs(state.slots) do
        latest = math.max(latest, slot.ends_at)
      end
      return latest
    end,
  }
end
