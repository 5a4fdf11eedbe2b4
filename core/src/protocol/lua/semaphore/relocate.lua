-- Moves a permit to the slots that more of the nodes granted. It keeps its lease. Never takes a slot of another permit: a
-- permit that cannot have the slots ends, since it would only keep others out. Never creates a permit.
-- KEYS, ARGV 1 to 5  as of `acquire` [, node marker]
-- ARGV  6 the slots, "3,7"   7 proposed token µs, 0 for this node's time; with a marker 8 to 11 as 11 to 14 of `take`
-- reply as of `take`; "0 0 time": it could not have the slots, or was over
local marker, wanted = KEYS[7], ARGV[6]
local now, micros = clock()
local code, left
if marker then code, left = refuses(marker, now, ARGV[8], ARGV[9], ARGV[10], ARGV[11]) end
local refusal = string.format('%d %.0f %s', code or 0, left or 0, micros)
redis.call('HLEN', tokens)
local its = mend(key, slots, taken, now) and redis.call('HGET', slots, field)
if not its then return refusal end
local ends = ends_at(field, its, now)
if ends and its == wanted and not code then return '1 ' .. tokens_of(its) .. ' ' .. micros end
repeat until not sweep(now)
if ends and not code and can_have(its, wanted) then
  local found = {}
  for slot in wanted:gmatch('%d+') do found[#found + 1] = slot end
  local drawn = draw_each(found, last_tokens(found), now, micros, ARGV[7])
  exchange(field, its, wanted, ends)
  return '1 ' .. drawn .. ' ' .. micros
end
free(field, its)
let_in(now, micros)
return refusal
