-- Lets a reader in, unless there is a writer or a writer waits. Otherwise it gives it a place in the queue of readers.
-- A second run only confirms that the client is alive.
-- KEYS  lock, token counter, readers, queues of writers and of readers, clients that are alive [, node marker]
-- ARGV  1 field   2 counter ttl ms, 0 for none   3 the prefix of its reader key   4 wake channel   5 handover   6 channel
--       7 on a cluster "1": announce to the shard, too   8 ttl ms   9 client   10 for how long its places count, ms; "0"
--       takes none   11 unused; with a marker: 12 quarantine µs, 13 run id, 14 when keys may have been lost, µs, 15 "1"
--       when every write is on disk before its reply
-- reply a string of numbers, as of `enter`; without places as of `acquire`
local marker, ttl, client, place_ttl = KEYS[7], ARGV[8], ARGV[9], ARGV[10]
local now, micros = clock()
if marker then
  local code, left = refuses(marker, now, ARGV[12], ARGV[13], ARGV[14], ARGV[15])
  if code then return string.format('%d %.0f %s', code, left, micros) end
end
local there = redis.call('EXISTS', lock, writers_queue, readers_queue)
local pttl = there == 0 and -2 or redis.call('PTTL', lock)
local mode = mode_of(pttl)
local function let_in()
  put_reader_key(field, ttl)
  local token = token_to_read(micros)
  put_reader(field, ttl, now, pttl)
  return '1 ' .. token .. ' ' .. micros
end
local may_read = not mode or mode == 'read'
-- Nobody waits if only the lock is there, or nothing.
if may_read and pttl ~= -1 and there == (mode and 1 or 0) then return let_in() end

-- Functions of the rest.
if mode == 'read' and reads(field, now) then return let_in() end
if pttl == -1 then return '2 0 ' .. micros end
local entry = ttl .. '/' .. client .. '/' .. field
local writer, alive_until
if may_read then
  writer, alive_until = first(writers_queue, alive, now)
  local reader = first(readers_queue, alive, now)
  if not writer or not mode and handover ~= 'i' and reader and came_before(reader, writer) then
    local granted = let_in()
    if reader then
      redis.call('ZREM', readers_queue, entry)
      -- The other waiting readers, too.
      if redis.call('EXISTS', readers_queue) == 1 then let_readers_in(now, micros) end
    end
    return granted
  end
  if not mode and handover ~= 'i' then
    let_writer_in(writer, alive_until, now, micros)
    pttl, writer = redis.call('PTTL', lock), nil
  end
end
-- What may change without a notification: a holder's lease ends, or the first writer's client is no longer alive.
local retry_after = writer and math.ceil((alive_until - now) / 1000) or math.max(pttl, -1)
if place_ttl == '0' then return string.format('0 %.0f %s', retry_after, micros) end
local ticket = give_place(readers_queue, alive, entry, client, place_ttl, now, micros)
return string.format('0 %.0f %s %s %d', retry_after, micros, ticket, redis.call('ZRANK', readers_queue, entry))
