-- Ends a writer's tenure, but leaves the lock taken until the TTL is over: a writer that nobody owns replaces it.
-- Announces the new TTL to all waiters. Runs when memory is full. A second run changes nothing.
-- KEYS, ARGV 1 to 7  as of `leave`
-- ARGV  8 the field of the rest   9 ttl ms
-- reply 1 released, 0 the tenure held nothing here
if is_mine(lock, field .. ':write') then
  -- PEXPIRE is allowed when memory is full, unlike HSET; after a write HSET is allowed, too.
  redis.call('PEXPIRE', lock, ARGV[9])
  redis.call('HSET', lock, ARGV[8] .. ':write', '1')
  redis.call('HDEL', lock, field .. ':write')
  announce(channel, sharded, '1')
  return 1
end
if is_mine(lock, ARGV[8] .. ':write') then return 1 end
-- One of several nodes: the upgrade of this reader has not reached it.
if not remove(lock, field) then return 0 end
redis.call('ZREM', readers, field)
redis.call('DEL', reader_key(field))
if purge((clock())) then announce(channel, sharded, '1') end
return 1
