-- Ends one tenure, and announces the lock as free if it was the last one. Runs when memory is full.
-- KEYS  lock
-- ARGV  1 field   2 channel   3 on a cluster "1": announce to the shard, too
-- reply 1 released, 0 the tenure held nothing here
if not remove(KEYS[1], ARGV[1]) then return 0 end
-- Only tenures of an explicit owner can share the lock. The announcement comes last and may fail: a user without the
-- right to publish has released all the same.
if ARGV[1]:sub(1, 1) ~= '=' or redis.call('EXISTS', KEYS[1]) == 0 then announce(ARGV[2], ARGV[3]) end
return 1
