-- ledger: the data of both sliding algorithms: positions in ascending order, each with the running total of hits up to and
-- including it, packed in a string. The hits since any position are one subtraction after a binary search.
--
-- Packed: count (2), total before the oldest (4, 7 if wide), then position (7) and total (4 or 7) of each entry.
local ledger = {}

function ledger.new()
  return { count = 0, base = 0, text = '', size = 11, format = '>I7I4' }
end

-- Returns a position and its total; i from 1.
function ledger.entry(of, i)
  local position, total = unpack_from(of.format, of.text, (i - 1) * of.size + 1)
  return position, total
end

function ledger.total_before(of, i)
  if i <= 1 then
    return of.base
  end
  local _, total = ledger.entry(of, i - 1)
  return total
end

function ledger.total(of)
  return ledger.total_before(of, of.count + 1)
end

-- Returns the first i for which found(position, total) is true, or count + 1.
function ledger.first(of, found)
  local low, high = 1, of.count + 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if found(ledger.entry(of, middle)) then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

-- Returns the first entry with at least this position.
function ledger.since(of, position)
  return ledger.first(of, function(other)
    return other >= position
  end)
end

-- Drops all entries before i.
function ledger.forget(of, i)
  if i > 1 then
    of.base = ledger.total_before(of, i)
    of.text = string.sub(of.text, (i - 1) * of.size + 1)
    of.count = of.count - i + 1
  end
end

-- Merges the oldest entry into the next one.
function ledger.merge_oldest(of)
  of.text = string.sub(of.text, of.size + 1)
  of.count = of.count - 1
end

-- Rewrites all entries, with totals from 0 and the given width.
local function rebase(of, wide)
  local parts, base, format = {}, of.base, wide and '>I7I7' or '>I7I4'
  for i = 1, of.count do
    local position, total = ledger.entry(of, i)
    parts[i] = pack(format, position, total - base)
  end
  of.base, of.text, of.format, of.size = 0, table.concat(parts), format, wide and 14 or 11
end

-- Adds hits at a position that is not before the newest; `merge`: adds to the newest entry if it has that position.
function ledger.add(of, position, hits, merge)
  local total = ledger.total(of) + hits
  if total >= 4294967296 and (of.size == 11 or total > MAX_HITS) then
    local base = of.base
    rebase(of, total - base >= 4294967296)
    total = math.min(total - base, MAX_HITS)
  end
  if merge and of.count > 0 and ledger.entry(of, of.count) == position then
    ledger.pop(of)
  end
  of.text = of.text .. pack(of.format, position, total)
  of.count = of.count + 1
end

-- Drops the newest entry.
function ledger.pop(of)
  of.count = of.count - 1
  of.text = string.sub(of.text, 1, of.count * of.size)
end

-- Removes hits, newest first.
function ledger.take_newest(of, hits)
  local total = ledger.total(of) - hits
  while of.count > 0 and ledger.total_before(of, of.count) >= total do
    ledger.pop(of)
  end
  if of.count > 0 and ledger.total(of) > total then
    local position = ledger.entry(of, of.count)
    ledger.pop(of)
    of.text = of.text .. pack(of.format, position, total)
    of.count = of.count + 1
  end
end

-- Adds to the totals of some entries, and returns their text.
local function shifted(of, first, last, by)
  local parts, text, format, size = {}, of.text, of.format, of.size
  for i = first, last do
    local position, total = unpack_from(format, text, (i - 1) * size + 1)
    parts[i - first + 1] = pack(format, position, total + by)
  end
  return table.concat(parts)
end

-- Removes hits from entry i and, if it has fewer, from later entries. Entries without hits are
-- dropped. Only differences of totals count, so that the fewer of the others are rewritten.
function ledger.take_at(of, i, hits)
  local least = ledger.total_before(of, i) + hits
  local first = ledger.first(of, function(_, total)
    return total > least
  end)
  local from = math.max(first, i)
  if i - 1 < of.count - from then
    local kept = string.sub(of.text, (from - 1) * of.size + 1)
    of.text, of.base = shifted(of, 1, i - 1, hits) .. kept, of.base + hits
  else
    local kept = string.sub(of.text, 1, (i - 1) * of.size)
    of.text = kept .. shifted(of, from, of.count, -hits)
  end
  of.count = of.count - (from - i)
end

function ledger.read(text, at, wide)
  local of = ledger.new()
  if wide then
    of.size, of.format = 14, '>I7I7'
  end
  of.count, of.base, at = unpack_from(wide and '>I2I7' or '>I2I4', text, at)
  local stop = at + of.count * of.size
  of.text = string.sub(text, at, stop - 1)
  if #of.text ~= of.count * of.size then
    error('a ledger is cut short')
  end
  return of, stop
end

-- All ledgers of a value have the same width.
function ledger.is_wide(of)
  return of.size == 14 or of.base >= 4294967296
end

function ledger.write(of, wide)
  if wide and of.size == 11 then
    rebase(of, true)
  end
  return pack(wide and '>I2I7' or '>I2I4', of.count, of.base) .. of.text
end

function ledger.copy(of)
  return { count = of.count, base = of.base, text = of.text, size = of.size, format = of.format }
end
