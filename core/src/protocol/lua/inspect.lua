-- Reads the holders of the lock. Changes nothing.
-- KEYS  lock, token counter
-- reply {pttl ms, counter, field, ...}; pttl is -2 when nobody holds it, -1 when the key has no TTL; or only -2: it is a
--       read/write lock, which has a script of its own
local all = fields(KEYS[1])
if is_read_write(all) then return -2 end
local reply = { redis.call('PTTL', KEYS[1]), tonumber(redis.call('GET', KEYS[2]) or 0) or 0 }
for _, field in ipairs(all) do reply[#reply + 1] = field end
return reply
