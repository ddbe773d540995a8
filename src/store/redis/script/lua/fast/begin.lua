-- The beginning of the script of the fast path. The script is this file, the files of the
-- algorithms that a call needs, and decide.lua.
--
-- It decides and writes as ../decide.lua does, but without the tables and closures for features
-- that it does not support: entries to record, grants and resets, take-backs, a counter twice in a
-- request, and values that are wide or of another amount. A request with any of these is passed on:
-- nothing is written, and the caller sends it to ../decide.lua.
local text, reply = ARGV[3], {}
local pcall, pack, unpack_from, max = redis.pcall, struct.pack, struct.unpack, math.max
-- Time in us for which a counter is kept after it stops mattering.
local GRACE = 60000000
-- Bound of the short form of a count.
local MAX_SHORT = 4294967295
local ABSENT = 36028797018963968
-- When the hits of a check are written: if it is allowed (1), if it is denied (2), in both cases;
-- or they are refunded.
local BOTH, REFUND = 3, 4
-- Algorithms by number. Each is called as judge(at, value, hits, writes): its parameters begin at
-- `at` of the text, `value` is the stored value or false. It returns the position after its
-- parameters and, unless the request must be passed on: the instant, true if the hits are allowed,
-- the new value or nothing, the time until which it matters, or nothing if that is unchanged, the
-- remaining hits, negative if a fixed window of one period counts more than its limit, reset_after,
-- retry_after if denied, and the binding window, from 0.
local judges = {}
-- Defined by holds.lua, marks.lua and concurrency.lua, in scripts for limits that keep holds.
local decide_hold, marked, decide_slots

-- True if each write sets the time to live. With the server's clock it is not needed if the value
-- matters as long as the old one.
local renews = ARGV[2] ~= '1'
local now
if ARGV[1] == '' then
  local clock = redis.call('TIME')
  now = clock[1] * 1000000 + clock[2]
else
  now = tonumber(ARGV[1])
end
