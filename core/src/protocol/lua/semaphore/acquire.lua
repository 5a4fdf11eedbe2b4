-- Acquires slots of a semaphore for one permit, in its turn, or takes a place in its queue. A second run only confirms
-- that the client is alive: its places count for a while after each run.
-- KEYS  semaphore, slots of each field, slots that are taken, tokens of each slot, queue, clients that are alive
-- ARGV  1 field   2 token ttl ms, 0 for none   3 wake channel   4 handover   5 on a cluster "1": announce to the shard, too
--       6 how many slots   7 of how many   8 ttl ms   9 client   10 for how long its places count, ms; "0" takes none
-- reply a string: a code, its value, this node's time in µs, and for a place two more
--       "1 slot:token,... time"             granted
--       "0 left time"                       too few are free, or others come first; it took no place. -1: without end
--       "0 retry_after time ticket ahead"   it waits behind `ahead` others and sends again after `retry_after` ms; -1: when
--                                           notified
--       "2 0 time"                          the key is not a semaphore
local count, of, ttl, client, place_ttl = ARGV[6], tonumber(ARGV[7]), ARGV[8], ARGV[9], ARGV[10]
local now, micros = clock()
local left = redis.call('PTTL', key)
local is_changed
if left ~= -1 then begun, is_changed = mend(key, slots, taken, now) end
if not begun then return '2 0 ' .. micros end
local granted = mine(ttl, now, micros, not is_changed and left)
if granted then return granted end

-- Functions of the rest.
local entry = ttl .. '/' .. client .. '/' .. count .. ':' .. ARGV[7] .. '/' .. field
local head, alive_until = first(queue, alive, now)
local function wait()
  local retry_after = until_first_end(now)
  if place_ttl == '0' then return string.format('0 %.0f %s', retry_after, micros) end
  may_expire(queue, place_ttl)
  local ticket = give_place(queue, alive, entry, client, place_ttl, now, micros)
  -- The first waiter sends again when a lease ends, the others when the client of the first is no longer alive.
  if head and head ~= entry then
    -- The places of this client count for longer now.
    if client_of(head) == client then alive_until = math.max(alive_until, now + place_ttl * 1000) end
    retry_after = math.max(retry_after, math.ceil((alive_until - now) / 1000))
  end
  return string.format('0 %.0f %s %s %d', retry_after, micros, ticket, redis.call('ZRANK', queue, entry))
end
if head and head ~= entry and (handover == '0' or finds_it_full(head, now)) then return wait() end

-- Functions of the rest.
if head and head ~= entry then
  local before = head
  head, alive_until = let_in(now, micros, head, alive_until)
  granted = head ~= before and mine(ttl, now, micros)
  if granted then return granted end
end
local found = (not head or head == entry) and find_free(tonumber(count), of, now)
if not found then return wait() end
local last = last_tokens(found)
may_keep(key, slots, taken, ttl)
if head then redis.call('ZREM', queue, entry) end
return '1 ' .. grant(field, found, last, ttl, now, micros) .. ' ' .. micros
