-- The beginning of every script. A script is this file, the files of the algorithms that a call
-- needs, and decide.lua or amend.lua.
--
-- ARGV[1] now in us since the epoch; empty: this server's clock.
-- ARGV[2] minimum time to live of a counter, in ms.
-- ARGV[3] the first or only text with requests, as the front end defines it.
-- Time in us for which a counter is kept after it stops mattering, so that it still exists after
-- the clock steps back.
local GRACE = 60000000
-- Bounds of the short form of a count, and of any count.
local MAX_SHORT, MAX_HITS = 4294967295, 9007199254740991
local ABSENT = 36028797018963968
-- The most hits beyond a limit that a reply has room for.
local MOST_BEYOND = 549755813888
-- From here on, the tag of a value marks additional data next to the state, see beside.lua.
local WITH_DATA = 48
-- When the hits of a check are written: if it is allowed (1), if it is denied (2), in both cases.
-- Or in place of that: hits are refunded; the charge made at `charged_at` is taken back; the cost
-- of a hold is charged that may exceed the limit; only the latest instant is set; no write,
-- and the reply is that of a denial.
local BOTH, REFUND, TAKE_BACK, PAST, TOUCH, DENIED_REPORT = 3, 4, 5, 6, 7, 8
local charged_at
-- The target that the hits of a check were written to: none (0), the limit, or a grant.
local WRITTEN, OF_GRANT = 8, 24
-- Algorithms by number. Each is called as judge(at, value, hits, writes): its parameters begin at
-- `at` of the text, `value` is the stored value or false. It returns the position after its
-- parameters, and no more if the value cannot be read, or nil and the instant if that is in
-- none of the calendar windows that were sent. Otherwise: the instant, true if the hits are
-- allowed, the new value or nil, the time until which it matters, or nil if that is unchanged, the
-- remaining hits, negative if a fixed window of one period counts more than its limit, reset_after,
-- retry_after if denied, and the binding window, from 0.
-- With room for all, as other tables here: one that grows is built anew.
local judges = { 0, 0, 0, 0, 0, 0 }
-- If set, a judge stores the counted hits, remaining hits, reset_after and retry_after of each
-- window in it.
local usages
-- For concurrency: the operation on the permits of an ID, the ID, and the time for which a permit
-- is taken.
local permit_operation, permit_id, permit_ttl = 0, '', 0
-- Defined by the files beside.lua, holds.lua, marks.lua, ledger.lua and gcra.lua, in scripts that
-- have them.
local beside, judged, holds, marked, ledgers, rates

-- True if each write sets the time to live. With the server's clock it is not needed if the value
-- matters as long as the old one.
local renews = ARGV[2] ~= '1'
local renews_always = renews
local now
if ARGV[1] == '' then
  local clock = redis.call('TIME')
  now = clock[1] * 1000000 + clock[2]
else
  now = tonumber(ARGV[1])
end
local least_ms = renews and tonumber(ARGV[2]) or 1
-- Declared last: Lua searches the variables that functions use from the last to the first.
local text, reply = ARGV[3], {}
local call, pack, unpack_from, max = redis.pcall, struct.pack, struct.unpack, math.max
-- Times to live in milliseconds, as text. Cached, since formatting a number for each call is slow.
local texts = {}

-- Writes a value to its key, to live until it no longer matters or as long as before. Returns the
-- error, if any.
local function save(key, new, lives_until)
  if not lives_until then
    return call('SET', key, new, 'KEEPTTL').err
  end
  local ms = max(math.ceil((max(lives_until - now, 0) + GRACE) / 1000), least_ms)
  local as_text = texts[ms]
  if not as_text then
    as_text = string.format('%.0f', ms)
    texts[ms] = as_text
  end
  return call('SET', key, new, 'PX', as_text).err
end
