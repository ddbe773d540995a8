-- concurrency: a check that decides alone. The same steps as ../concurrency.lua; text and reply as in
-- holds.lua, but the slots are in the counter's value, and the hash is not used.
--
-- Parameters: as in ../concurrency.lua.
-- Value: 26, last us (7), slots (2), then for each: the instant at which it was taken (7), the
--   instant at which it ends (7), hits (4), ID with a length prefix (1).
do
  local sub = string.sub

  -- Returns the time until `room` hits or fewer are left in the slots of a value.
  local function fits_after(value, instant, used, room)
    local slots, at = {}, 11
    while at <= #value do
      local _, ends, hits
      _, ends, hits, _, at = unpack_from('>I7I7I4Bc0', value, at)
      if ends > instant then
        slots[#slots + 1] = { ends, hits }
      end
    end
    table.sort(slots, function(one, other)
      return one[1] < other[1]
    end)
    for _, slot in ipairs(slots) do
      used = used - slot[2]
      if used <= room then
        return slot[1] - instant
      end
    end
    return ABSENT
  end

  -- Returns as decide_hold does.
  decide_slots = function(operation, hits, at, key, id, ttl, writes, save)
    local NONE, RESERVE, MOST_SLOTS = 0, 1, 65535
    local NOTHING, RESERVED, REPEATED, SETTLED = 0, 1, 2, 6
    local limit, after = unpack_from('>I4', text, at)
    local value, instant, count = pcall('GET', key), now, 0
    if value then
      if #value < 10 or string.byte(value) ~= 26 then
        return after
      end
      local last
      last, count = unpack_from('>I7I2', value, 2)
      instant = max(now, last)
    end
    -- Of the slots that have not ended: their number, hits, the latest end, the hits of the ID. The
    -- other slots are left out of `kept`, and so is the one that the check ends.
    local is_end, live, used, latest, own = operation > RESERVE, 0, 0, instant, 0
    local kept, from, place, ended = '', 11, 11, false
    for _ = 1, count do
      local _, ends, of_slot, of_id, next_place = unpack_from('>I7I7I4Bc0', value, place)
      local is_live = ends > instant and of_slot > 0
      local is_own = is_live and of_id == id
      if is_live and not (is_own and is_end and not ended) then
        live, used, latest = live + 1, used + of_slot, max(latest, ends)
        own = is_own and own + of_slot or own
      else
        ended = ended or is_own
        kept, from = kept .. sub(value, from, place - 1), next_place
      end
      place = next_place
    end
    if value and place ~= #value + 1 then
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
        kept = kept .. sub(value, from)
      end
      if charges then
        live, used, latest = live + 1, used + hits, max(latest, instant + ttl)
        kept = kept .. pack('>I7I7I4Bc0', instant, instant + ttl, hits, #id, id)
        effect = operation == NONE and NOTHING or own > 0 and REPEATED or RESERVED
      end
      if live > MOST_SLOTS then
        return after
      end
      new = pack('>BI7I2', 26, instant, live) .. kept
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
      retry = fits_after(value, instant, used, limit - hits)
    end
    return after, pack('>BBI5BI7I7BI4I4', 5, verdict + 2, left, 0, latest - instant, retry, effect, 0, 0)
  end
end
