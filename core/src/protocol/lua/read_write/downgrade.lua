-- Turns a writer into a reader, and lets in the waiting readers. Runs when memory is full.
-- KEYS, ARGV  as of `leave`, without an entry
-- reply 1 it reads, 0 the tenure held nothing here
local now, micros = clock()
local pttl = redis.call('PTTL', lock)
if pttl <= 0 then return 0 end
if not writes(field) then return reads(field, now) and 1 or 0 end
redis.call('HDEL', lock, field .. ':write')
redis.call('DEL', readers)
local ttl = string.format('%.0f', pttl)
put_reader_key(field, ttl)
put_reader(field, ttl, now, pttl)
if handover == 'i' then announce(channel, sharded, '1') else let_readers_in(now, micros) end
return 1
