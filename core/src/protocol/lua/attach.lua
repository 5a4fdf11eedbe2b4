-- Replaces the field of a detached tenure by a new one, so that its text works only once. Never shortens a TTL.
-- KEYS  lock
-- ARGV  1 the detached field   2 the new field   3 ttl ms to extend to, 0 to leave the TTL
-- reply the TTL in ms, or -2: neither field holds the lock, or its TTL is gone
local ttl = redis.call('PTTL', KEYS[1])
if holds(KEYS[1], ARGV[2]) then return ttl end
ttl = math.max(ttl, tonumber(ARGV[3]))
if not holds(KEYS[1], ARGV[1]) or ttl <= 0 then return -2 end
rename(KEYS[1], ARGV[1], ARGV[2], string.format('%.0f', ttl))
return ttl
