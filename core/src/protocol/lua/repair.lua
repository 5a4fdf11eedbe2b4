-- Writes a tenure again on a node that lacks it, for a holder that has it on a quorum of the others. Never takes a lock
-- from another owner, never restores a tenure that was ended on purpose, never shortens a TTL. A node that may not vote
-- accepts no tenure: it may have lost another one that still counts.
-- KEYS  lock, token counter, ended note [, node marker]
-- ARGV  1 field   2 explicit owner ("=name") or ""   3 ttl ms   4 the tenure's token   5 counter ttl ms, 0 for none
--       with a marker: 6 quarantine µs, then (added by the node) 7 run id, 8 when keys may have been lost, µs,
--       0 for unknown, 9 "1" when every write is on disk before its reply
-- reply as renew for one tenure: {1} it is there, {0} it is not, {-1} another owner holds it, {-2} ended on purpose
local key, field, ttl = KEYS[1], ARGV[1], tonumber(ARGV[3])
if KEYS[4] then
  local time = redis.call('TIME')
  if refuses(KEYS[4], time[1] * 1000000 + time[2], ARGV[6], ARGV[7], ARGV[8], ARGV[9]) then return { 0 } end
end
local ended = redis.call('GET', KEYS[3])
if ended and ended:find(' ' .. field .. ' ', 1, true) then return { -2 } end
local pttl = redis.call('PTTL', key)
if holds(key, field) then
  if pttl < ttl then redis.call('PEXPIRE', key, ARGV[3]) end
  return { 1 }
end
if pttl ~= -2 and (pttl == -1 or ARGV[2] == '' or not joins(key, ARGV[2])) then return { -1 } end
-- The next grant of this node needs a higher token.
if (tonumber(redis.call('GET', KEYS[2]) or 0) or 0) < tonumber(ARGV[4]) then
  set_counter(KEYS[2], ARGV[4], ARGV[5])
end
put(key, field, pttl > ttl and string.format('%.0f', pttl) or ARGV[3])
return { 1 }
