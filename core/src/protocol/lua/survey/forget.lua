-- Deletes the token counter of a lock that nobody holds. Later tokens are larger only by the clock.
-- KEYS  lock   counter
-- reply 1 no counter is left, 0 somebody holds the lock
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('DEL', KEYS[2])
return 1
