-- Ends one tenure, or gives up its place in a queue. Lets in the next waiters, or announces the lock as free if nobody
-- waits. Runs when memory is full.
-- KEYS  lock, token counter, readers, queues of writers and of readers, clients that are alive
-- ARGV  1 to 7 as of `read`   8 its entry, or "" for a tenure that was granted: it has none
-- reply 1 released, 0 the tenure held nothing here
local left = ARGV[8] ~= '' and redis.call('ZREM', writers_queue, ARGV[8]) + redis.call('ZREM', readers_queue, ARGV[8]) > 0
local was = remove(lock, field .. ':write') and 'write' or remove(lock, field) and 'read' or nil
if not was and not left then return 0 end
local released = was and 1 or 0
local now, micros = clock()
if was == 'read' then redis.call('ZREM', readers, field) redis.call('DEL', reader_key(field)) end
local mode = redis.pcall('HGET', lock, 'mode')
if was and redis.call('HLEN', lock) == 1 then redis.call('DEL', lock, readers)
elseif was == 'write' or type(mode) == 'table' then return released
elseif mode == 'read' then
  if not purge(now) then
    -- Readers that waited behind a writer, which has just given up its place.
    if left and handover ~= 'i' and not first(writers_queue, alive) and first(readers_queue, alive) then
      let_readers_in(now, micros)
    end
    return released
  end
  was = 'read'
elseif redis.call('EXISTS', lock) == 1 then return released end
if handover == 'i' or not pass_on(was, now, micros) then announce(channel, sharded, '1') end
return released
