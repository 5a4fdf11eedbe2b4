-- Replaces the field of a detached permit by a new one, so that its text works only once. Never shortens a lease.
-- KEYS  semaphore, slots of each field, slots that are taken, tokens of each slot
-- ARGV  1 the new field   2 the detached field   3 ttl ms to extend to, 0 to leave the lease   4 its slots, "3,7"
-- reply the time that the permit has left in ms, or -2: neither field has one with these slots
local now = clock()
local old, ttl, wanted = ARGV[2], tonumber(ARGV[3]), ARGV[4]
if not mend(key, slots, taken, now) then return -2 end
local its = redis.call('HGET', slots, field)
local ends = ends_at(field, its, now)
if ends then return its == wanted and math.floor((ends - now) / 1000) or -2 end
its = redis.call('HGET', slots, old)
ends = its == wanted and ends_at(old, its, now)
if not ends then return -2 end
local left = math.max(math.floor((ends - now) / 1000), ttl)
if left <= 0 then return -2 end
redis.call('ZREM', key, old .. '|' .. its)
redis.call('HDEL', slots, old)
redis.call('HSET', slots, field, its)
redis.call('ZADD', key, string.format('%.0f', now + left * 1000), field .. '|' .. its)
keep_all(key, slots, taken, left)
return left
