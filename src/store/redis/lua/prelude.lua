-- What every script begins with. The script is this file, those of the algorithms that a call needs, and decide.lua.
local pack, unpack_from = struct.pack, struct.unpack
-- What a double counts exactly.
local MAX_HITS = 9007199254740991
-- How long a counter is kept after it stops mattering, so that a clock that steps back finds it again.
local GRACE = 60000000
local algorithms = {}
