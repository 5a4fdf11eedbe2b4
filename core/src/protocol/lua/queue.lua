-- The queue of a lock that its waiters get in their order. An entry is "ttl/client/field", and its score is the ticket:
-- µs, in the order of arrival. `alive` has for each client the time until which its entries count, in µs of this node.
local function client_of(entry) return entry:match('^%d+/([^/]*)/') end
-- Gives an entry a place behind all others, unless it has one, and makes the entries of its client count for
-- `place_ttl` ms from now. Returns its ticket.
local function give_place(queue, alive, entry, client, place_ttl, now, micros)
  local ticket = redis.call('ZSCORE', queue, entry)
  if not ticket then
    local last = redis.call('ZREVRANGE', queue, '0', '0', 'WITHSCORES')[2]
    ticket = string.format('%.0f', math.max(now, last and last + 1 or 0))
    redis.call('ZADD', queue, ticket, entry)
  end
  -- PEXPIRE is allowed when memory is full, unlike ZADD; after a write ZADD is allowed, too.
  redis.call('PEXPIRE', queue, place_ttl)
  local is_new = redis.call('ZADD', alive, 'GT', now + place_ttl * 1000, client) == 1
  redis.call('PEXPIRE', alive, place_ttl)
  -- Each new client removes those that no longer count, so that there are never many of them.
  if is_new then redis.call('ZREMRANGEBYSCORE', alive, '-inf', micros) end
  return ticket
end
-- The first entry whose client is alive, the time until which that counts, and the time now; nothing if nobody waits.
-- Removes everything before it, also what is not an entry. `now`, `micros`: the time, if the script has read it.
local function first(queue, alive, now, micros)
  while true do
    local entry = redis.call('ZRANGE', queue, '0', '0')[1]
    if not entry then return end
    if not now then now, micros = clock() end
    local client = client_of(entry)
    local alive_until = client and tonumber(redis.call('ZSCORE', alive, client) or 0) or 0
    if alive_until > now then return entry, alive_until, now, micros end
    redis.call('ZREM', queue, entry)
  end
end
-- Makes the first waiter the holder of a free lock, for no longer than its client counts as alive, and notifies that
-- client alone. False if nobody waits. `handover`: "0" to only notify it. `entry`: the first entry, if the script has
-- taken it out of the queue.
local function hand_over(key, counter, counter_ttl, queue, alive, wake, handover, sharded, entry)
  if handover == '0' then
    entry = first(queue, alive)
    if entry then announce(wake .. ':' .. client_of(entry), sharded) end
    return entry
  end
  local now, micros = clock()
  entry = entry or redis.call('ZPOPMIN', queue)[1]
  while entry do
    -- This and `first` read the same entries.
    local ttl, client, field = entry:match('^(%d+)/([^/]*)/(.*)$')
    local alive_until = client and tonumber(redis.call('ZSCORE', alive, client) or 0) or 0
    if alive_until > now then
      draw(counter, counter_ttl, now, micros, '0')
      put(key, field, math.min(ttl, math.ceil((alive_until - now) / 1000)))
      announce(wake .. ':' .. client, sharded)
      return true
    end
    entry = redis.call('ZPOPMIN', queue)[1]
  end
  return false
end
