-- Takes free slots of a semaphore for one permit, as one of several nodes that decide. It keeps no queue. A second run
-- changes nothing.
-- KEYS, ARGV 1 to 5  as of `acquire` [, node marker]
-- ARGV  6 how many slots   7 of how many   8 ttl ms   9 the slot from which on it takes free ones; behind the last one it
--       goes on at 0   10 proposed token µs, 0 for this node's time
--       with a marker: 11 quarantine µs, then (added by the node) 12 run id, 13 when keys may have been lost, µs,
--       0 for unknown, 14 "1" when every write is on disk before its reply
-- reply a string: a code, its value, and this node's time in µs
--       "1 slot:token,... time"   granted; slots ascend
--       "0 left time"             too few are free; the first lease ends in `left` ms, -1: none does
--       "2 0 time"                the key is not a semaphore
--       "3 left time"             the node is in quarantine, for left µs
--       "4 0 time"                the node has no marker
local marker, count, of, ttl, start = KEYS[7], tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8], tonumber(ARGV[9])
local now, micros = clock()
if marker then
  local code, left = refuses(marker, now, ARGV[11], ARGV[12], ARGV[13], ARGV[14])
  if code then return string.format('%d %.0f %s', code, left, micros) end
end
if redis.call('PTTL', key) == -1 or not mend(key, slots, taken, now) then return '2 0 ' .. micros end
local granted = mine(ttl, now, micros)
if granted then return granted end
may_keep(key, slots, taken, ttl)
-- All that are over, so that nodes differ in the free slots as little as possible.
repeat until not sweep(now)
local found = find_from(start, count, of)
if not found then return string.format('0 %.0f %s', until_first_end(now), micros) end
return '1 ' .. grant(field, found, last_tokens(found), ttl, now, micros, ARGV[10]) .. ' ' .. micros
