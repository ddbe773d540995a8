-- straight: requests of one check of the frequent kinds, without the tables and closures that decide.lua needs for all others:
-- a third of its time. What it decides, it decides, writes and replies byte for byte as decide.lua does; what it does not know
-- it passes on with nothing written, for the caller to ask decide.lua: any other value than one in the short form, and a write
-- that is refused.
--
-- KEYS    the counter of each request; the same may come again. Of a Cluster's node that is known to refuse the keys of others
--   (`locality.rs`), those of other slots than the first one's come after ARGV[3] instead: a key that is not its own it refuses
--   one by one, and that is passed on.
-- ARGV[1] and ARGV[2] as in decide.lua.
-- ARGV[3] each request's: algorithm (1), writes (1: 1 where allowed, 2 where denied, 3 always, 0 never), hits that must fit (4), then
--   fixed_window: limit (4), period us (7);
--   gcra, where one hit costs whole us: burst (4), the time that one hit costs (7), that all hits do (7), backlog of a burst (7),
--   deepest backlog (7), what stands in the short form before the backlog (5), bound of a backlog there (4).
-- Reply   of each request as in decide.lua with alternatives 0; or 2, and nothing else: passed on.
-- Values  fixed_window: 18, last us (7), hits (4). gcra: 24, the short form.
local pcall, pack, unpack_from, floor, ceil, max = redis.pcall, struct.pack, struct.unpack, math.floor, math.ceil, math.max
local FIXED_WINDOW, GRACE, ABSENT, PASSED_ON, MAX_HITS, LAST_16TH = 1, 60000000, 36028797018963968, '\2', 4294967295, 68719476736
-- As in gcra.lua.
local SHORT_UNTIL = 4503599627370496
local now = tonumber(ARGV[1])
if not now then
  local clock = redis.call('TIME')
  now = clock[1] * 1000000 + clock[2]
end
local least_ms, text, at, reply = tonumber(ARGV[2]), ARGV[3], 1, {}

local declared = #KEYS
for i = 1, declared + #ARGV - 3 do
  local key, algorithm, writes, hits, most, unit = KEYS[i] or ARGV[3 + i - declared]
  algorithm, writes, hits, most, unit, at = unpack_from('>BBI4I4I7', text, at)
  local value, instant = pcall('GET', key), now
  local known, allowed, written, left, reset, retry, new, lives_until

  if algorithm == FIXED_WINDOW then
    local tag, last, used
    if not value then
      tag, last, used = 18, -1, 0
    elseif #value == 12 then
      tag, last, used = unpack_from('>BI7I4', value)
      instant = max(now, last)
    end
    if tag == 18 then
      local start = instant - instant % unit
      if last < start then
        used = 0
      end
      allowed = used + hits <= most
      written = writes == 3 or writes == (allowed and 1 or 2)
      if written then
        used = used + hits
        new = pack('>BI7I4', 18, instant, used % 4294967296)
      end
      known, left, reset = used <= MAX_HITS, max(most - used, 0), start + unit - instant
      retry = hits <= most and reset or ABSENT
      -- What was written in this window goes when it does.
      lives_until = (last < start or least_ms > 1) and start + unit
    end
  else
    local cost, full, deepest, head, bound
    cost, full, deepest, head, bound, at = unpack_from('>I7I7I7I5I4', text, at)
    local backlog
    if not value then
      backlog = 0
    elseif #value == 12 then
      local tag, high, low = unpack_from('>BI6I5', value)
      local last = high * 16 + floor(low / LAST_16TH)
      backlog = low % LAST_16TH - head
      if tag == 24 and backlog >= 0 and backlog < bound then
        instant = max(now, last)
        backlog = max(backlog - (instant - last), 0)
      else
        backlog = nil
      end
    end
    if backlog then
      allowed = hits <= most and backlog + cost <= full
      written = writes == 3 or writes == (allowed and 1 or 2)
      if written then
        backlog = max(math.min(backlog + cost, deepest), backlog)
        new = pack('>BI6I5', 24, floor(instant / 16), instant % 16 * LAST_16TH + head + backlog)
      end
      known, left, reset = backlog < bound and instant < SHORT_UNTIL, floor(max(full - backlog, 0) / unit), backlog
      retry = hits <= most and max(backlog + cost - full, 0) or ABSENT
      lives_until = instant + backlog
    end
  end

  if known and written then
    local answer
    if lives_until then
      local ms = max(ceil((max(lives_until - now, 0) + GRACE) / 1000), least_ms)
      answer = pcall('SET', key, new, 'PX', ms)
    else
      answer = pcall('SET', key, new, 'KEEPTTL')
    end
    known = not answer.err
  end
  if known then
    reply[i] = pack('>BBBI7I7BI7I7', 0, allowed and 1 or 2, written and 1 or 0, instant, left, 0, reset, allowed and ABSENT or retry)
  else
    reply[i] = PASSED_ON
  end
end
return table.concat(reply)
