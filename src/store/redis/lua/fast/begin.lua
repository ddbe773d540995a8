-- What the script of the fast path begins with. The script is this file, those of the algorithms
-- that a call needs, and decide.lua.
--
-- What it decides, it decides and writes as ../decide.lua does, without the tables and closures
-- that are needed for all that it does not know: entries to record, grants and resets, take-backs,
-- a counter twice in a request, and values that are wide or of another amount. A request with any
-- of these it passes on, with nothing written, for the caller to ask ../decide.lua.
local text, reply = ARGV[3], {}
local pcall, pack, unpack_from, max = redis.pcall, struct.pack, struct.unpack, math.max
-- How long a counter is kept after it stops mattering.
local GRACE = 60000000
-- What the short form of a count holds.
local MAX_SHORT = 4294967295
local ABSENT = 36028797018963968
-- When the hits of a check are written: where it is allowed (1), where it is denied (2), in both
-- cases; or they are given back.
local BOTH, REFUND = 3, 4
-- Algorithms by their numbers. Each is called as judge(at, value, hits, writes): its parameters are
-- at `at` of the text, `value` is what is stored or false. It returns the place after its
-- parameters and, unless the request is to be passed on: the instant, whether the hits are allowed,
-- the new value or nothing, until when that matters, or nothing for as long as the old one did,
-- hits left, negative where a fixed window of one period counts more than its limit, reset_after,
-- retry_after where not allowed, and the window that binds, from 0.
local judges = {}

-- Whether each write says how long a value lives. By the server's clock it need not where the value
-- matters as long as the old one.
local renews = ARGV[2] ~= '1'
local now
if ARGV[1] == '' then
  local clock = redis.call('TIME')
  now = clock[1] * 1000000 + clock[2]
else
  now = tonumber(ARGV[1])
end
