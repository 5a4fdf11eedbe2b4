-- Changes the TTL of a key that holds this value, also to a shorter one: for the drop-in shims of libraries whose
-- callers expect that. Runs when memory is full. Two runs add twice.
-- KEYS  lock
-- ARGV  1 field (the value)   2 ms   3 "add" to what is left, "replace" what is left (both only where there is a ttl),
--       "set" it, with or without one
-- reply 1 done, 0 the value is not there, or has no ttl to change
local key, time, change = KEYS[1], tonumber(ARGV[2]), ARGV[3]
if not is_mine(key, ARGV[1]) then return 0 end
local pttl = redis.call('PTTL', key)
if pttl == -1 and change ~= 'set' then return 0 end
if change == 'add' then time = time + pttl end
redis.call('PEXPIRE', key, time)
return 1
