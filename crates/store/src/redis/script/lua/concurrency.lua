-- concurrency: at most in_flight hits at one time, as permits that end. The same steps as
-- crates/core/src/algorithm/concurrency.rs.
--
-- Parameters: in_flight (4).
-- Value: 26, last us (7), permits (2), then for each in the order in which they were taken: the
--   instant at which it was taken (7), the instant at which it ends (7), hits (4), ID with a length
--   prefix (1).
--
-- A counter may have 10,000 permits. They stay packed, since a table for each would take ten times
-- as long, and a step reads them once.
do
  local byte, sub = string.byte, string.sub
  -- Bytes of the value before its permits, of a permit without its ID, and offsets in a permit.
  local FIRST, PERMIT, ENDS, HITS_AT, LENGTH = 11, 19, 7, 14, 18
  -- An end relative to now and hits in one exact number: TTLs are below 2^37 us, hits below 2^14.
  local HITS = 16384
  local MOST_PERMITS = 65535
  local RESERVE, EXTEND, LOOK = 1, 5, 6

  -- Returns the time until `room` hits or fewer are left in the permits of a value. `in_order`:
  -- those that have not ended do so in the order in which they were taken.
  local function fits_after(value, instant, used, room, in_order)
    local permits, count, place = {}, 0, FIRST
    while place <= #value do
      local ends, hits, length = unpack_from('>I7I4B', value, place + ENDS)
      place = place + PERMIT + length
      if ends > instant then
        count = count + 1
        permits[count] = (ends - instant) * HITS + hits
        used = in_order and used - hits or used
        if in_order and used <= room then
          return ends - instant
        end
      end
    end
    table.sort(permits)
    for i = 1, count do
      local hits = permits[i] % HITS
      used = used - hits
      if used <= room then
        return (permits[i] - hits) / HITS
      end
    end
    return ABSENT
  end

  -- What is rare: created on first use.
  local function create_changes()
    -- Returns the permits with another end for those of an ID.
    local function extended(permits, id, ends)
      local parts, from, place, packed = {}, 1, 1, pack('>I7', ends)
      while place <= #permits do
        local after = place + PERMIT + byte(permits, place + LENGTH)
        if sub(permits, place + PERMIT, after - 1) == id then
          parts[#parts + 1] = sub(permits, from, place + ENDS - 1) .. packed
          from = place + HITS_AT
        end
        place = after
      end
      return table.concat(parts) .. sub(permits, from)
    end

    -- Returns the permits without the newest hits of any ID, and their number.
    local function refunded(permits, used, hits)
      -- The first hits stay: of the permits up to the one that has the last of them.
      local place, count, left = 1, 0, max(used - hits, 0)
      while left > 0 do
        local held, length = unpack_from('>I4B', permits, place + HITS_AT)
        local after = place + PERMIT + length
        count = count + 1
        if held > left then
          return sub(permits, 1, place + HITS_AT - 1) .. pack('>I4', left) .. sub(permits, place + LENGTH, after - 1), count
        end
        left, place = left - held, after
      end
      return sub(permits, 1, place - 1), count
    end

    -- Returns the permits without the rest of a charge by an ID, and their number; no value if none
    -- is left. Of several permits of one instant the whole one: a refund may have taken from
    -- another.
    local function taken_back(permits, count, id, hits)
      local place, found = 1, nil
      while place <= #permits do
        local taken_at, _, held, length = unpack_from('>I7I7I4B', permits, place)
        local after = place + PERMIT + length
        if taken_at == charged_at and sub(permits, place + PERMIT, after - 1) == id
          and (not found or held == hits or not found.is_whole) then
          found = { place = place, after = after, held = held, is_whole = held == hits }
        end
        place = after
      end
      if not found then
        return nil
      elseif found.held > hits then
        return sub(permits, 1, found.place + HITS_AT - 1) .. pack('>I4', found.held - hits)
          .. sub(permits, found.place + LENGTH), count
      end
      return sub(permits, 1, found.place - 1) .. sub(permits, found.after), count - 1
    end

    -- Returns the permits changed by an operation or in a mode that is rare, and their number; no
    -- value if none is changed.
    return function(permits, count, used, hits, writes, operation, id, ends)
      if operation == EXTEND then
        return extended(permits, id, ends), count
      elseif writes == TAKE_BACK then
        return taken_back(permits, count, id, hits)
      elseif hits > 0 then
        return refunded(permits, used, hits)
      end
    end
  end

  local change
  -- Judges a check with an operation on the permits of an ID. Returns what a judge returns, and the
  -- hits of the permits of the ID before it.
  judges[6] = function(at, value, hits, writes)
    local operation, id, ttl = permit_operation, permit_id, permit_ttl
    local limit, after = unpack_from('>I4', text, at)
    local instant, count = now, 0
    if value then
      if #value < 10 or byte(value) ~= 26 then
        return after
      end
      local last
      last, count = unpack_from('>I7I2', value, 2)
      instant = max(now, last)
    end
    -- Of the permits that have not ended: their number, hits, the latest end, the hits of the ID.
    -- The other permits are left out of `kept`, and so is the one that the check ends.
    local is_end = operation > RESERVE and operation < EXTEND
    local live, used, latest, own = 0, 0, instant, 0
    local parts, from, place, ended, in_order = {}, FIRST, FIRST, false, true
    local id_length, final = #id, byte(id, -1)
    for _ = 1, count do
      if place + LENGTH > #value then
        return after
      end
      local ends, of_permit, length = unpack_from('>I7I4B', value, place + ENDS)
      local next_place = place + PERMIT + length
      local is_live = ends > instant
      -- A substring costs more than its last byte.
      local is_own = is_live and length == id_length and (length == 0 or byte(value, next_place - 1) == final)
        and sub(value, place + PERMIT, next_place - 1) == id
      own = is_own and own + of_permit or own
      if is_live and not (is_own and is_end and not ended) then
        live, used, in_order = live + 1, used + of_permit, in_order and ends >= latest
        latest = max(latest, ends)
      else
        ended = ended or is_own
        if place > from then
          parts[#parts + 1] = sub(value, from, place - 1)
        end
        from = next_place
      end
      place = next_place
    end
    if value and place ~= #value + 1 then
      return after
    end
    local takes = operation <= RESERVE
    local allowed, new = true
    if takes and writes < REFUND then
      allowed = used + hits <= limit
    elseif writes == DENIED_REPORT then
      allowed = false
    end
    local charges = takes and (writes == BOTH or writes == (allowed and 1 or 2))
    if charges or ended then
      if value then
        parts[#parts + 1] = sub(value, from)
      end
      if charges then
        live, used, latest = live + 1, used + hits, max(latest, instant + ttl)
        parts[#parts + 1] = pack('>I7I7I4Bc0', instant, instant + ttl, hits, #id, id)
      end
      if live > MOST_PERMITS then
        return after
      end
      new = pack('>BI7I2', 26, instant, live) .. table.concat(parts)
    elseif live > 0 and (takes and writes >= REFUND and writes ~= DENIED_REPORT or operation == EXTEND and own > 0) then
      change = change or create_changes()
      parts[#parts + 1] = sub(value, from)
      local permits, rest = change(table.concat(parts), live, used, hits, writes, operation, id, instant + ttl)
      if permits then
        new = pack('>BI7I2', 26, instant, rest) .. permits
        permit_operation = LOOK
        local _, _, _, _, lives_until, left, reset = judges[6](at, new, 0, 0)
        return after, instant, true, new, lives_until, left, reset, nil, 0, own
      end
    end
    local left, retry = max(limit - used, 0)
    if not allowed then
      retry = ABSENT
      if used + hits <= limit then
        retry = 0
      elseif hits <= limit then
        retry = fits_after(new or value, instant, used, limit - hits, in_order)
      end
    end
    if usages then
      usages[1] = pack('>I7I7I7I7', used, left, latest - instant, retry or ABSENT)
    end
    return after, instant, allowed, new, latest, left, latest - instant, retry, 0, own
  end
end
