-- Acquires the lock for one tenure, in its turn, or takes a place in its queue. A second run only confirms that the
-- client is alive: its entries count for a while after each run. For a tenure of an explicit owner that was granted it
-- draws anew, as another of its tenures may have the last token.
-- KEYS  lock, token counter, queue, clients that are alive
-- ARGV  1 field (the tenure)   2 explicit owner ("=name") or ""   3 ttl ms   4 counter ttl ms, 0 for none   5 client
--       6 for how long its entries count, ms; "0" takes no place   7 wake channel   8 "0" if a lock is never handed over
--       9 on a cluster "1": announce to the shard, too
-- reply a string of numbers: a code, its value, this node's time in µs, and for a place two more
--       "1 token time"                      granted
--       "0 pttl time"                       another owner holds it or comes first; it took no place. -1: without end
--       "0 retry_after time ticket ahead"   it waits behind `ahead` others and sends again after `retry_after` ms; -1: when
--                                           notified
--       "2 0 time"                          the key is not a lock
local key, counter, queue, alive, field, ttl = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1], ARGV[3]
local now, micros = clock()

local function grant()
  local token = draw(counter, ARGV[4], now, micros, '0')
  put(key, field, ttl)
  return '1 ' .. token .. ' ' .. micros
end

local pttl = redis.call('PTTL', key)
if pttl == -2 and redis.call('EXISTS', queue) == 0 then return grant() end

-- Functions of the rest.
local entry = ARGV[3] .. '/' .. ARGV[5] .. '/' .. field
local function grant_queued()
  local granted = grant()
  redis.call('ZREM', queue, entry)
  return granted
end

if pttl == -2 then
  local head = first(queue, alive, now)
  if not head then return grant() end
  if head == entry then return grant_queued() end
  hand_over(key, counter, ARGV[4], queue, alive, ARGV[7], ARGV[8], ARGV[9])
  pttl = redis.call('PTTL', key)
else
  if holds(key, field) then
    if pttl < tonumber(ttl) then redis.call('PEXPIRE', key, ttl) end
    local token = ARGV[2] == '' and (redis.call('GET', counter) or 0) or draw(counter, ARGV[4], now, micros, '0')
    return '1 ' .. token .. ' ' .. micros
  end
  if pttl == -1 and not is_lock_without_ttl then return '2 0 ' .. micros end
  if ARGV[2] ~= '' and joins(key, ARGV[2]) then
    if tonumber(ttl) < pttl then ttl = string.format('%.0f', pttl) end
    return grant_queued()
  end
end
if ARGV[6] == '0' then return string.format('0 %.0f %s', math.max(pttl, -1), micros) end

local ticket = give_place(queue, alive, entry, ARGV[5], ARGV[6], now, micros)
-- The first waiter sends again when the lock expires, the others when the client of the first is no longer alive.
local head, alive_until = first(queue, alive, now)
local retry_after = pttl
if head ~= entry and pttl >= 0 then retry_after = math.max(pttl, math.ceil((alive_until - now) / 1000)) end
return string.format('0 %.0f %s %s %d', math.max(retry_after, -1), micros, ticket, redis.call('ZRANK', queue, entry))
