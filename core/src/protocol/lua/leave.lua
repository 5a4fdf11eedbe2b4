-- Ends one tenure, or gives up its place in the queue. Hands a free lock to the next waiter, or announces it as free if
-- nobody waits. Runs when memory is full.
-- KEYS  lock, token counter, queue, clients that are alive
-- ARGV  1 field   2 its entry, or "" for a tenure that was granted: it has none   3 counter ttl ms, 0 for none
--       4 channel   5 wake channel   6 "0" if a lock is never handed over   7 on a cluster "1": announce to the shard, too
-- reply 1 released, 0 the tenure held nothing here
local left = ARGV[2] ~= '' and redis.call('ZREM', KEYS[3], ARGV[2]) == 1
local removed = remove(KEYS[1], ARGV[1])
-- Only tenures of an explicit owner can share the lock.
local alone = removed and ARGV[1]:sub(1, 1) ~= '='
local is_free = alone or (removed or left) and redis.call('EXISTS', KEYS[1]) == 0
if not is_free then return removed and 1 or 0 end
local entry, waits
if ARGV[6] == '0' then
  waits = redis.call('EXISTS', KEYS[3]) == 1
else
  entry = redis.call('ZPOPMIN', KEYS[3])[1]
  waits = entry
end
if not waits then
  announce(ARGV[4], ARGV[7])
  return removed and 1 or 0
end

-- Functions of the rest.
local passed = hand_over(KEYS[1], KEYS[2], ARGV[3], KEYS[3], KEYS[4], ARGV[5], ARGV[6], ARGV[7], entry)
if not passed then announce(ARGV[4], ARGV[7]) end
return removed and 1 or 0
