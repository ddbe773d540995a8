-- concurrency: a check that decides alone. The same steps as ../concurrency.lua; text and reply as in
-- holds.lua, but the slots are in the counter's value, and the hash is not used.
--
-- Parameters: as in ../concurrency.lua.
-- Value: 26, last us (7), slots (2), then for each: the instant at which it was taken (7), the
--   instant at which it ends (7), hits (4), ID with a length prefix (1).
do
  local byte, sub = string.byte, string.sub
  -- Bytes of the value before its slots, of a slot without its ID, and offsets in a slot.
  local FIRST, SLOT, ENDS = 11, 19, 7
  -- An end relative to now and hits in one exact number, as in ../concurrency.lua.
  local HITS = 16384

  -- Returns the time until `room` hits or fewer are left in the slots of a value. `in_order`: those
  -- that have not ended do so in the order in which they were taken.
  local function fits_after(value, instant, used, room, in_order)
    local slots, count, place = {}, 0, FIRST
    while place <= #value do
      local ends, hits, length = unpack_from('>I7I4B', value, place + ENDS)
      place = place + SLOT + length
      if ends > instant then
        count = count + 1
        slots[count] = (ends - instant) * HITS + hits
        used = in_order and used - hits or used
        if in_order and used <= room then
          return ends - instant
        end
      end
    end
    table.sort(slots)
    for i = 1, count do
      local hits = slots[i] % HITS
      used = used - hits
      if used <= room then
        return (slots[i] - hits) / HITS
      end
    end
    return ABSENT
  end

  -- Returns as decide_hold does.
  decide_slots = function(operation, hits, at, key, id, ttl, writes, save)
    local NONE, RESERVE, RESERVE_ONCE, MOST_SLOTS = 0, 1, 7, 65535
    local NOTHING, RESERVED, REPEATED, SETTLED = 0, 1, 2, 6
    local limit, after = unpack_from('>I4', text, at)
    local value, instant, count = pcall('GET', key), now, 0
    if value then
      if #value < 10 or byte(value) ~= 26 then
        return after
      end
      local last
      last, count = unpack_from('>I7I2', value, 2)
      instant = max(now, last)
    end
    -- Of the slots that have not ended: their number, hits, the latest end, the hits of the ID. The
    -- other slots are left out of `kept`, and so is the one that the check ends.
    local is_end = operation > RESERVE and operation ~= RESERVE_ONCE
    local live, used, latest, own = 0, 0, instant, 0
    local parts, from, place, ended, in_order = {}, FIRST, FIRST, false, true
    local id_length, final = #id, byte(id, -1)
    for _ = 1, count do
      local ends, of_slot, length = unpack_from('>I7I4B', value, place + ENDS)
      local next_place = place + SLOT + length
      local is_live = ends > instant and of_slot > 0
      -- A substring costs more than its last byte.
      local is_own = is_live and length == id_length and byte(value, next_place - 1) == final
        and sub(value, place + SLOT, next_place - 1) == id
      if is_live and not (is_own and is_end and not ended) then
        live, used, in_order = live + 1, used + of_slot, in_order and ends >= latest
        latest = max(latest, ends)
        own = is_own and own + of_slot or own
      else
        ended = ended or is_own
        if place > from then
          parts[#parts + 1] = sub(value, from, place - 1)
        end
        from = next_place
      end
      place = next_place
    end
    if value and place ~= #value + 1 or own > 0 and operation == RESERVE_ONCE then
      return after
    end
    local allowed, effect, new = true, NOTHING
    if is_end then
      effect = ended and SETTLED or NOTHING
    elseif writes ~= REFUND then
      allowed = used + hits <= limit
    end
    local charges = not is_end and writes == (allowed and 1 or 2)
    if charges or ended then
      if value then
        parts[#parts + 1] = sub(value, from)
      end
      if charges then
        live, used, latest = live + 1, used + hits, max(latest, instant + ttl)
        parts[#parts + 1] = pack('>I7I7I4Bc0', instant, instant + ttl, hits, #id, id)
        effect = operation == NONE and NOTHING or own > 0 and REPEATED or RESERVED
      end
      if live > MOST_SLOTS then
        return after
      end
      new = pack('>BI7I2', 26, instant, live) .. table.concat(parts)
      if save(key, new, latest) then
        return after
      end
    end
    local verdict, left = 64 + (new and 8 or 0), max(limit - used, 0)
    if allowed then
      return after, pack('>BBI5BI7BI4I4', 5, verdict + 1, left, 0, latest - instant, effect, 0, 0)
    end
    local retry = ABSENT
    if hits <= limit then
      retry = fits_after(value, instant, used, limit - hits, in_order)
    end
    return after, pack('>BBI5BI7I7BI4I4', 5, verdict + 2, left, 0, latest - instant, retry, effect, 0, 0)
  end
end
