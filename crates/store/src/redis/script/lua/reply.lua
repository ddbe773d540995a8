-- reply: what decide.lua, several.lua and amend.lua share; decide.lua defines the formats.
local declared = #KEYS
-- Flags of a check of a limit that keeps holds, and of one with entries to record.
local HOLDS, RECORDS, WITH_EFFECT = 128, 64, 64
local AGAIN, BEYOND, JUDGED, PARTLY = '\2', 4, '\5', '\6'
-- Flags of a prior: other slots judge the rest of the request, checks name the same counter.
local PARTIAL, REPEATS = 4, 8
local UNREADABLE, ALLOWED, DENIED, NO_ROOM, NOT_WRITTEN = 0, 1, 2, 3, 4

-- Number of keys of previous checks.
local before = 0
-- The error of a write that proves that no counter was written: the caller may retry elsewhere.
local refused

-- Returns the verdict of a check that could not be written.
local function failure(err)
  if string.sub(err, 1, 8) == 'READONLY' then
    refused = err
  end
  return string.sub(err, 1, 3) == 'OOM' and NO_ROOM or NOT_WRITTEN
end
