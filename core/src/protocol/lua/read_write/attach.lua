-- Replaces the field of a detached tenure by a new one, so that its text works only once. Never shortens a TTL.
-- KEYS  lock, token counter, readers
-- ARGV  1 the new field   2 counter ttl ms   3 the prefix of its reader key   4 the detached field
--       5 ttl ms to extend to, 0 to leave the TTL
-- reply the time that the tenure has left in ms, or -2: neither field has a tenure
local now = clock()
local old = ARGV[4]
local function left(reader) return math.floor((redis.call('ZSCORE', readers, reader) - now) / 1000) end
if writes(field) then return redis.call('PTTL', lock) end
if reads(field, now) then return left(field) end
if writes(old) then
  local ttl = math.max(redis.call('PTTL', lock), tonumber(ARGV[5]))
  if ttl <= 0 then return -2 end
  redis.call('HDEL', lock, old .. ':write')
  redis.call('HSET', lock, field .. ':write', '1')
  keep(lock, string.format('%.0f', ttl))
  return ttl
end
if not reads(old, now) then return -2 end
local ttl = math.max(left(old), tonumber(ARGV[5]))
if ttl <= 0 then return -2 end
redis.call('HDEL', lock, old)
redis.call('ZREM', readers, old)
redis.call('DEL', reader_key(old))
local text = string.format('%.0f', ttl)
put_reader_key(field, text)
put_reader(field, text, now, redis.call('PTTL', lock))
return ttl
