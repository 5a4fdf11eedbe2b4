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
if is_free and (handover == 'i' or redis.call('EXISTS', writers_queue, readers_queue) == 0) then
  redis.call('DEL', lock, readers, reader_key(field))
  announce(channel, sharded, '1')
  return released
end
local mode = redis.pcall('HGET', lock, 'mode')
if type(mode) == 'table' then return released end
-- The mode until now, if it is known.
local was = removed and (mode == 'write' and 'write' or 'read') or nil
if is_free then redis.call('DEL', lock, readers, reader_key(field))
elseif was == 'write' then return released
elseif was then
  redis.call('ZREM', readers, field)
  redis.call('DEL', reader_key(field))
end
local now, micros = clock()
if not is_free and mode == 'read' and not left and is_read(now) then return released end

-- Functions of the rest.
if not is_free and mode == 'read' then
  if not purge(now) then
    -- Readers that waited behind a writer, which has just given up its place.
    if left and handover ~= 'i' and not first(writers_queue, alive, now) and first(readers_queue, alive, now) then
      let_readers_in(now, micros)
    end
    return released
  end
  was = 'read'
elseif not is_free and redis.call('EXISTS', lock) == 1 then return released end
if handover == 'i' or not pass_on(was, now, micros) then announce(channel, sharded, '1') end
return released
