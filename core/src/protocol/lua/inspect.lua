-- Tells who holds the lock. Changes nothing.
-- KEYS  lock, token counter
-- reply {pttl ms, counter, field, ...}; pttl is -2 when nobody holds it, -1 when the key has no TTL
local all = fields(KEYS[1])
local reply = { redis.call('PTTL', KEYS[1]), tonumber(redis.call('GET', KEYS[2]) or 0) or 0 }
for _, field in ipairs(all) do reply[#reply + 1] = field end
return reply
