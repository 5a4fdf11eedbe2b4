-- Ends one tenure, or gives up its place in a queue. Lets in the next waiters, or announces the lock as free if nobody
-- waits. Runs when memory is full.
-- KEYS  lock, token counter, readers, queues of writers and of readers, clients that are alive
-- ARGV  1 to 7 as of `read`   8 its entry, or "" for a tenure that was granted: it has none
-- reply 1 released, 0 the tenure held nothing here
local left = ARGV[8] ~= '' and redis.call('ZREM', writers_queue, ARGV[8]) + redis.call('ZREM', readers_queue, ARGV[8]) > 0
local removed = remove_mine()
if not removed and not left then return 0 end
local released = removed and 1 or 0
local is_free = removed and redis.call('HLEN', lock) == 1
-- The mode that the lock still has, and the one that has just ended; nothing if it is unknown.
local mode, was
if is_free then
  local waited_for = handover ~= 'i' and redis.call('EXISTS', writers_queue, readers_queue) > 0
  local ended = waited_for and redis.pcall('HGET', lock, 'mode')
  if ended == 'read' or ended == 'write' then was = ended end
  redis.call('DEL', lock, readers, reader_key(field))
  if not waited_for then
    announce(channel, sharded, '1')
    return released
  end
elseif removed then
  -- A writer is alone, so this was a reader, and others read on.
  mode = 'read'
  redis.call('ZREM', readers, field)
  redis.call('DEL', reader_key(field))
else
  mode = redis.pcall('HGET', lock, 'mode')
  if type(mode) == 'table' then return released end
end
local now, micros = clock()
if mode == 'read' and not left and is_read(now) then return released end

-- Functions of the rest.
if mode == 'read' then
  if not purge(now) then
    -- Readers waited behind a writer, which has just given up its place.
    if left and not first(writers_queue, alive, now) then
      if handover == 'i' then announce(channel, sharded, '1')
      elseif first(readers_queue, alive, now) then let_readers_in(now, micros) end
    end
    return released
  end
  was = 'read'
elseif not is_free and redis.call('EXISTS', lock) == 1 then return released end
if handover == 'i' or not pass_on(was, now, micros) then announce(channel, sharded, '1') end
return released
