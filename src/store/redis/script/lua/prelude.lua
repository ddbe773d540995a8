-- The beginning of every script. A script is this file, the files of the algorithms that a call needs, and decide.lua.
local pack, unpack_from = struct.pack, struct.unpack
-- Maximum integer that a double represents exactly, with all integers below it.
local MAX_HITS = 9007199254740991
-- Time in us for which a counter is kept after it stops mattering, so that it still exists after the clock steps back.
local GRACE = 60000000
local algorithms = {}
-- Now, in us since the epoch: as given, or by this server's clock.
local now = tonumber(ARGV[1])
if not now then
  local clock = redis.call('TIME')
  now = clock[1] * 1000000 + clock[2]
end
-- Defined by holds.lua, in scripts for limits with holds.
local holds
