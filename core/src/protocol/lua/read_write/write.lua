-- Lets a writer in, if nobody holds the lock and it is its turn. Otherwise it gives it a place in the queue of writers,
-- which keeps new readers out. A second run only confirms that the client is alive.
-- KEYS, ARGV, reply: as of `read`; 11 is the proposed token in µs, 0 for this node's time
-- If several nodes decide, a place keeps out new readers only: a node on which the lock is free lets any writer in.
local marker, ttl, client, place_ttl = KEYS[7], ARGV[8], ARGV[9], ARGV[10]
local now, micros = clock()
if marker then
  local code, left = refuses(marker, now, ARGV[12], ARGV[13], ARGV[14], ARGV[15])
  if code then return string.format('%d %.0f %s', code, left, micros) end
end
local pttl = redis.call('PTTL', lock)
local mode = mode_of(pttl)
if mode == 'write' and writes(field) then
  keep(lock, ttl)
  return '1 ' .. (redis.call('GET', counter) or 0) .. ' ' .. micros
end
if pttl == -1 then return '2 0 ' .. micros end
local function let_in()
  local token = draw(counter, counter_ttl, now, micros, ARGV[11])
  put_writer(field, ttl)
  return '1 ' .. token .. ' ' .. micros
end
if not mode and redis.call('EXISTS', writers_queue, readers_queue) == 0 then return let_in() end

-- Functions of the rest.
-- If several nodes decide, one place stands for all writers of a client.
local entry = ttl .. '/' .. client .. '/' .. (handover == 'i' and '' or field)
if mode == 'read' and purge(now) then mode, pttl = nil, -2 end
if not mode then
  local writer, alive_until, reader
  if handover ~= 'i' then
    writer, alive_until = first(writers_queue, alive, now)
    reader = first(readers_queue, alive, now)
  end
  local to_readers = reader and (not writer or came_before(reader, writer))
  if not to_readers and (not writer or writer == entry) then
    local granted = let_in()
    if writer or handover == 'i' then redis.call('ZREM', writers_queue, entry) end
    return granted
  end
  if to_readers then let_readers_in(now, micros) else let_writer_in(writer, alive_until, now, micros) end
  pttl = redis.call('PTTL', lock)
end
if place_ttl == '0' then return string.format('0 %.0f %s', math.max(pttl, -1), micros) end
local ticket = give_place(writers_queue, alive, entry, client, place_ttl, now, micros)
if handover == 'i' then return string.format('0 %.0f %s', math.max(pttl, -1), micros) end
-- The first waiter sends again when the lock expires, the others when the client of the first is no longer alive.
local head, alive_until = first(writers_queue, alive, now)
local retry_after = pttl
if head ~= entry and pttl >= 0 then retry_after = math.max(pttl, math.ceil((alive_until - now) / 1000)) end
local ahead = redis.call('ZRANK', writers_queue, entry)
return string.format('0 %.0f %s %s %d', math.max(retry_after, -1), micros, ticket, ahead)
