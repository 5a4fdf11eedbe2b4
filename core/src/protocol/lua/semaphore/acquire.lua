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
redis.call('HLEN', tokens)
if redis.call('PTTL', key) == -1 or not mend(key, slots, taken, now) then return '2 0 ' .. micros end

local entry = ttl .. '/' .. client .. '/' .. count .. ':' .. ARGV[7] .. '/' .. field
local granted = mine(ttl, now, micros)
if granted then return granted end
may_keep(key, slots, taken, ttl)
local head = first(queue, alive)
if head and head ~= entry and handover ~= '0' then
  let_in()
  granted = mine(ttl, now, micros)
  if granted then return granted end
  head = first(queue, alive)
end
if not head or head == entry then
  local found = find_free(tonumber(count), of, now)
  if found then
    if head then redis.call('ZREM', queue, entry) end
    return '1 ' .. grant(field, found, ttl, now, micros) .. ' ' .. micros
  end
end

local soonest = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
local retry_after = soonest and math.max(1, math.ceil((soonest - now) / 1000)) or -1
if place_ttl == '0' then return string.format('0 %.0f %s', retry_after, micros) end
local ticket = give_place(queue, alive, entry, client, place_ttl, now, micros)
-- The first waiter sends again when a lease ends, the others when the client of the first is no longer alive.
local before, alive_until = first(queue, alive)
if before ~= entry then retry_after = math.max(retry_after, math.ceil((alive_until - now) / 1000)) end
return string.format('0 %.0f %s %s %d', retry_after, micros, ticket, redis.call('ZRANK', queue, entry))
