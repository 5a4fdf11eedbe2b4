-- Ends one tenure, but leaves the lock taken until the TTL is over: a field that nobody owns or joins replaces the
-- tenure's. Announces the new TTL to all waiters. Runs when memory is full. A second run changes nothing.
-- KEYS  lock
-- ARGV  1 field   2 the field of the rest   3 ttl ms   4 channel   5 on a cluster "1": announce to the shard, too
-- reply 1 released, 0 the tenure held nothing here
if not is_mine(KEYS[1], ARGV[1]) then return is_mine(KEYS[1], ARGV[2]) and 1 or 0 end
-- PEXPIRE is allowed when memory is full, unlike the next writes; after a write these are allowed, too.
redis.call('PEXPIRE', KEYS[1], ARGV[3])
rename(KEYS[1], ARGV[1], ARGV[2], ARGV[3])
announce(ARGV[4], ARGV[5], '1')
return 1
