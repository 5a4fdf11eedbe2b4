-- What the scripts of a read/write lock share. The lock is Redisson's hash: "mode" is "read" or "write", each reader
-- has its field, and a writer has its field followed by ":write". Redisson keeps a key for each reader, which expires
-- with that reader's lease. So do these scripts, since Redisson checks those keys. `readers` has the end of each of our
-- readers' leases as well, in µs of this node.
-- The first KEYS and ARGV of every script for one tenure:
local lock, counter, readers = KEYS[1], KEYS[2], KEYS[3]
local field, counter_ttl, reader_key_prefix = ARGV[1], ARGV[2], ARGV[3]
-- The next ones of scripts that may let waiters in: the queues of writers and of readers, the clients that are alive.
-- `handover`: "1" makes the next waiters holders, "0" only notifies them, "i" does neither, since several nodes decide.
local writers_queue, readers_queue, alive = KEYS[4], KEYS[5], KEYS[6]
local wake, handover, channel, sharded = ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local function reader_key(reader) return reader_key_prefix .. ':' .. reader .. ':rwlock_timeout:1' end
-- Extends the TTL of a key to at least `ttl` ms.
local function keep(key, ttl)
  if redis.call('PTTL', key) < tonumber(ttl) then redis.call('PEXPIRE', key, ttl) end
end
-- "read", "write", or "lock" for a lock of another kind; nothing if it is free.
local function mode_of(pttl) return pttl ~= -2 and (redis.call('HGET', lock, 'mode') or 'lock') or nil end
-- Whether a reader has a lease that is not over.
local function reads(reader, now)
  if redis.call('HEXISTS', lock, reader) == 0 then return false end
  return tonumber(redis.call('ZSCORE', readers, reader) or 0) > now
end
local function writes(writer) return redis.call('HEXISTS', lock, writer .. ':write') == 1 end
-- Writes the key that Redisson checks for a reader, or extends its TTL to `ttl` ms. The first write of an acquire: SET
-- is refused when memory is full, but not after another write. A reader that has its key, since the lock was handed to
-- it, is not refused.
local function put_reader_key(reader, ttl)
  local redisson_key = reader_key(reader)
  local put = redis.pcall('SET', redisson_key, '1', 'PX', ttl, 'NX')
  if refused(put) then
    local left = redis.call('PTTL', redisson_key)
    if left == -2 then redis.call('SET', redisson_key, '1', 'PX', ttl, 'NX') end
    redis.call('PEXPIRE', redisson_key, string.format('%.0f', math.max(ttl, left)))
  elseif not put then
    keep(redisson_key, ttl)
  end
end
-- Lets a reader in that has its key, or extends its lease to `ttl` ms. `pttl`: the TTL of the lock.
local function put_reader(reader, ttl, now, pttl)
  may_expire(lock, ttl)
  may_expire(readers, ttl)
  redis.call('HSET', lock, 'mode', 'read', reader, '1')
  local is_longest = pttl < tonumber(ttl)
  if is_longest then redis.call('PEXPIRE', lock, ttl) end
  redis.call('ZADD', readers, 'GT', now + ttl * 1000, reader)
  -- No lease in `readers` ends after the lock.
  if is_longest then redis.call('PEXPIRE', readers, ttl) else keep(readers, ttl) end
end
-- Lets a writer into a free lock.
local function put_writer(writer, ttl)
  may_expire(lock, ttl)
  redis.call('HSET', lock, 'mode', 'write', writer .. ':write', '1')
  redis.call('PEXPIRE', lock, ttl)
end
-- Removes the field of this tenure, as a reader or a writer. Returns whether it had one.
local function remove_mine()
  local removed = redis.pcall('HDEL', lock, field, field .. ':write')
  if refused(removed) then
    -- A user without the right to write gets no error for a tenure that is not there.
    if not is_mine(lock, field) and not is_mine(lock, field .. ':write') then return false end
    redis.call('HDEL', lock, field)
  end
  return type(removed) == 'number' and removed > 0
end
-- Whether a lease of one of our readers goes on.
local function is_read(now)
  return tonumber(redis.call('ZREVRANGE', readers, '0', '0', 'WITHSCORES')[2] or 0) > now
end
-- Removes readers whose leases are over, and the lock with the last of them. Returns whether the lock is free. For
-- Redisson's readers, which are not in `readers`, it checks their keys.
local function purge(now)
  local over = redis.call('ZRANGEBYSCORE', readers, '-inf', string.format('%.0f', now))
  for _, reader in ipairs(over) do redis.call('HDEL', lock, reader) end
  if #over > 0 then redis.call('ZREMRANGEBYSCORE', readers, '-inf', string.format('%.0f', now)) end
  if redis.call('HLEN', lock) - 1 > redis.call('ZCARD', readers) then
    local all = redis.call('HGETALL', lock)
    for i = 1, #all, 2 do
      local reader = all[i]
      if reader ~= 'mode' and not redis.call('ZSCORE', readers, reader) then
        local is_alive = false
        for hold = 1, tonumber(all[i + 1]) or 0 do
          local its_key = reader_key_prefix .. ':' .. reader .. ':rwlock_timeout:' .. hold
          is_alive = is_alive or redis.call('EXISTS', its_key) == 1
        end
        if not is_alive then redis.call('HDEL', lock, reader) end
      end
    end
  end
  if redis.call('HLEN', lock) > 1 then return false end
  redis.call('DEL', lock, readers)
  return true
end
-- The token of the readers now: the last writer's plus 1, which no writer draws. Without a last token the counter
-- starts from this node's time.
local function token_to_read(micros)
  local last
  if counter_ttl == '0' then last = redis.call('GET', counter) else last = redis.call('GETEX', counter, 'PX', counter_ttl) end
  last = tonumber(last)
  if not last or last >= 9007199254740990 then
    set_counter(counter, micros, counter_ttl)
    last = tonumber(micros)
  end
  return string.format('%.0f', last + 1)
end
-- Lets in all waiting readers whose clients are alive.
local function let_readers_in(now, micros)
  local notified, pttl = {}, redis.call('PTTL', lock)
  if handover == '1' then token_to_read(micros) end
  local kept, entries = 0, nil
  repeat
    entries = redis.call('ZRANGE', readers_queue, kept, kept + 999)
    for _, entry in ipairs(entries) do
      local ttl, client, reader = entry:match('^(%d+)/([^/]*)/(.*)$')
      local alive_until = client and tonumber(redis.call('ZSCORE', alive, client) or 0) or 0
      if alive_until > now then
        if handover == '1' then
          redis.call('ZREM', readers_queue, entry)
          local lease = math.min(ttl, math.ceil((alive_until - now) / 1000))
          lease = string.format('%.0f', lease)
          put_reader_key(reader, lease)
          put_reader(reader, lease, now, pttl)
          pttl = math.max(pttl, tonumber(lease))
        else
          kept = kept + 1
        end
        if not notified[client] then
          notified[client] = true
          announce(wake .. ':' .. client, sharded)
        end
      else
        redis.call('ZREM', readers_queue, entry)
      end
    end
  until #entries < 1000
  announce(channel, sharded, '1')
end
-- Lets the first writer into a free lock, for no longer than its client counts as alive.
local function let_writer_in(entry, alive_until, now, micros)
  if handover == '1' then
    local ttl, writer = entry:match('^(%d+)/[^/]*/(.*)$')
    redis.call('ZREM', writers_queue, entry)
    draw(counter, counter_ttl, now, micros, '0')
    put_writer(writer, string.format('%.0f', math.min(ttl, math.ceil((alive_until - now) / 1000))))
  end
  announce(wake .. ':' .. client_of(entry), sharded)
end
-- Whether it is the readers' turn if both wait and the last mode is unknown: the first to arrive is next.
local function came_before(reader, writer)
  return tonumber(redis.call('ZSCORE', readers_queue, reader)) < tonumber(redis.call('ZSCORE', writers_queue, writer))
end
-- Lets the next waiters into a free lock; false if nobody waits. A writer is followed by all waiting readers, and
-- readers by the first writer (B. B. Brandenburg, J. H. Anderson, "Reader-writer synchronization for shared-memory
-- multiprocessor real-time systems", 2009). `was`: the mode until now, if it is known.
local function pass_on(was, now, micros)
  local writer, alive_until = first(writers_queue, alive, now)
  local reader = first(readers_queue, alive, now)
  if not writer and not reader then return false end
  local to_readers = not writer or reader and (was == 'write' or not was and came_before(reader, writer))
  if to_readers then let_readers_in(now, micros) else let_writer_in(writer, alive_until, now, micros) end
  return true
end
