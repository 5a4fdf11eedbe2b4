-- Writes a tenure again on a node that lacks it, for a holder that has it on a quorum of the others. Never writes into
-- a lock that is held in the other mode, never restores a tenure that was ended on purpose, never shortens a TTL. A
-- node that may not vote accepts no tenure.
-- KEYS  lock, token counter, readers, ended note [, node marker]
-- ARGV  1 field   2 counter ttl ms, 0 for none   3 the prefix of its reader key   4 "r" or "w"   5 ttl ms
--       6 the tenure's token; with a marker 7 to 10 as 12 to 15 of `read`
-- reply as renew for one tenure: {1} a writer's is there, {2} a reader's is there, {0} it is not, {-1} another owner
--       holds it, {-2} ended on purpose
local now = clock()
if KEYS[5] and refuses(KEYS[5], now, ARGV[7], ARGV[8], ARGV[9], ARGV[10]) then return { 0 } end
local ended = redis.call('GET', KEYS[4])
if ended and ended:find(' ' .. field .. ' ', 1, true) then return { -2 } end
local as, ttl, token = ARGV[4], ARGV[5], tonumber(ARGV[6])
local pttl = redis.call('PTTL', lock)
local mode = mode_of(pttl)
if mode == 'write' and writes(field) then
  keep(lock, ttl)
  return { 1 }
end
if mode == 'read' and as == 'w' and purge(now) then mode = nil end
if pttl == -1 or mode and (mode ~= 'read' or as == 'w') then return { -1 } end
-- The next grant of this node needs a higher token.
if as == 'r' then token = token - 1 end
if (tonumber(redis.call('GET', counter) or 0) or 0) < token then
  set_counter(counter, string.format('%.0f', token), counter_ttl)
end
if as == 'w' then put_writer(field, ttl)
else
  put_reader_key(field, ttl)
  if not mode then redis.call('DEL', readers) end
  put_reader(field, ttl, now, pttl)
end
return { as == 'w' and 1 or 2 }
