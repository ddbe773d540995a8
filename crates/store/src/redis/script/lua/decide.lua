-- decide: judges requests one after the other at one instant, and charges according to their
-- charge modes. The same steps as crates/core/src/algorithm/judge.rs and verdict.rs.
--
-- KEYS    the counters of the checks, in order, each followed by the hash of its holds if the limit
--   keeps them; a key may occur again. For a Cluster node that is known to refuse
--   the keys of other nodes (see `foreign_slots.rs`), keys of other slots than the first one's come
--   after ARGV[3] instead: the node refuses foreign keys one by one, and the reply is 2.
-- ARGV[1] and ARGV[2] as in begin.lua.
-- ARGV[3] the requests. A single check that decides alone: algorithm (1), plus 64 if entries are
--   recorded, plus 128 if the limit keeps holds, writes (1), hits, or the cost of a commit (4); the
--   entries to record if there are any: their length (4), their number (1), then each with a length
--   prefix (2); the fields of holds.lua if the limit keeps them; the algorithm's parameters.
--   Otherwise: 0 (1), prior (1: 0 open, 1 denied, 2 admitted; plus 4 if other slots judge the rest;
--   plus 8 if checks name the same counter), checks (4), and for each: algorithm (1),
--   writes if the request is admitted (1), writes if it is not (1), role (1: 0 enforce, 1 none, 2
--   quota, 3 quota in shadow; plus 4 times on_store_error: 0 error, 1 allow, 2 deny, 3 the caller
--   decides; plus 16 times the writes of a peek as later checks of the counter see them), and from
--   the hits on as above.
-- Reply   for each request: 5 and for each check: verdict (1: 0 unreadable, 1 allowed, 2 denied, 3
--   no room, 4 not written; plus 8 if written, plus 16 if from a grant, plus 64 if the fields of
--   holds.lua follow), remaining hits (5; negative if a fixed window of one period counts more than
--   its limit), window (1), reset_after us (7), if denied retry_after us (7, 2^55 if absent). If it
--   was admitted here, and other slots or the caller decide the rest, 6 instead of 5, and after
--   each check: the same fields again for the counter without the hits that only an admitted
--   request is charged; the instant of the charge, or of its grant (7); what amend.lua needs to
--   take the charge back, with a length prefix (2).
--   Or 2 if a key that was not declared could not be read or written: no counter is written, and
--   the request is sent again alone.
--   Or 4 if a counter's instant is in none of the calendar windows that were sent: this server's
--   now (7), that instant (7).
local size, byte = #text, string.byte
-- Number of replies, and position of the next request.
local replied, place = 0, 1
local decide_several

while place <= size do
  local algorithm, writes, hits, at = unpack_from('>BBI4', text, place)
  replied = replied + 1
  if algorithm == 0 then
    decide_several = decide_several or several()
    replied, place = decide_several(replied, writes, hits, at)
  elseif algorithm < HOLDS then
    before = before + 1
    local value = call('GET', KEYS[before] or ARGV[3 + before - declared])
    local instant, allowed, new, lives_until, left, reset, retry, window, wrote
    if algorithm < RECORDS then
      place, instant, allowed, new, lives_until, left, reset, retry, window = judges[algorithm](at, value, hits, writes)
      wrote = new and WRITTEN or 0
    end
    if not instant and (algorithm >= RECORDS or value and #value > 0 and byte(value) >= WITH_DATA) then
      local entries
      if algorithm >= RECORDS then
        algorithm, entries, at = algorithm - RECORDS, at + 4, at + 4 + unpack_from('>I4', text, at)
      end
      place, instant, allowed, new, lives_until, left, reset, retry, window, wrote =
        beside().judge(algorithm, at, value, hits, writes, entries)
    end
    local err = new and save(KEYS[before] or ARGV[3 + before - declared], new, lives_until)
    local failed = err and failure(err)
    wrote = err and 0 or wrote
    if before > declared and (err or not instant and not allowed) then
      reply[replied] = AGAIN
    elseif not instant then
      reply[replied] = allowed and pack('>BI7I7', BEYOND, now, allowed) or pack('>BBI5BI7', 5, UNREADABLE, 0, 0, 0)
    elseif not allowed then
      reply[replied] = pack('>BBI5BI7I7', 5, wrote + DENIED, left, window, reset, retry)
    elseif failed then
      reply[replied] = pack('>BBI5BI7', 5, failed, 0, 0, 0)
    else
      reply[replied] = pack('>BBI5BI7', 5, wrote + ALLOWED, left, window, reset)
    end
  else
    before = before + 2
    local own = holds.load(algorithm % RECORDS, KEYS[before - 1] or ARGV[2 + before - declared],
      KEYS[before] or ARGV[3 + before - declared])
    local entries
    algorithm = algorithm - HOLDS
    if algorithm >= RECORDS then
      algorithm, entries, at = algorithm - RECORDS, at + 4, at + 4 + unpack_from('>I4', text, at)
    end
    local verdict, left, window, reset, retry, effect, held, cost, new, lives_until, id, record
    place, verdict, left, window, reset, retry, effect, held, cost, new, lives_until, id, record =
      holds.judge(own, algorithm, at, hits, writes, entries)
    local err = new and holds.write(own, new, lives_until, id, record)
    local failed = err and failure(err)
    if before > declared and (err or not verdict and not left) then
      reply[replied] = AGAIN
    elseif not verdict then
      reply[replied] = left and pack('>BI7I7', BEYOND, now, left) or pack('>BBI5BI7', 5, UNREADABLE, 0, 0, 0)
    elseif retry then
      reply[replied] = pack('>BBI5BI7I7BI4I4', 5, failed and WITH_EFFECT + DENIED or verdict, left, window, reset, retry,
        effect, held, cost)
    elseif failed then
      reply[replied] = pack('>BBI5BI7', 5, failed, 0, 0, 0)
    else
      reply[replied] = pack('>BBI5BI7BI4I4', 5, verdict, left, window, reset, effect, held, cost)
    end
  end
end
return refused and redis.error_reply(refused) or table.concat(reply)
