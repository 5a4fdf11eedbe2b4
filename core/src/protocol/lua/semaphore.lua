-- What the scripts of a semaphore share. Its key is a sorted set with a member "field|slots" for each permit. The score
-- is the time until which the permit counts, in µs of this node; slots are numbers from 0, as "3,7". The key `slots`
-- has the slots of each field, and `taken` has each slot that is taken, by its number. The three are written together.
-- Each script first restores those that were lost from the others: so no permit is granted twice, and none is missing
-- for longer than its lease.
-- The first KEYS and ARGV of every script for one permit:
local key, slots, taken, tokens, field = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1]
-- The next ones of scripts that may let waiters in: the queue, the clients that are alive. `handover`: "1" makes the
-- next waiters holders, "0" only notifies the first; "i" notifies all on the channel `wake`, since several nodes decide
-- and keep no queue.
local queue, alive, token_ttl, wake, handover, sharded = KEYS[5], KEYS[6], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
-- Extends the TTL of the three keys to at least `ttl` ms. Runs when memory is full.
local function keep_all(key, slots, taken, ttl)
  local longest = string.format('%.0f', math.max(ttl, redis.call('PTTL', key)))
  redis.call('PEXPIRE', key, longest)
  redis.call('PEXPIRE', slots, longest)
  redis.call('PEXPIRE', taken, longest)
end
-- Fails for a user without the right to PEXPIRE, before one of the keys exists without a TTL.
local function may_keep(key, slots, taken, ttl)
  may_expire(key, ttl)
  may_expire(slots, ttl)
  may_expire(taken, ttl)
end
-- Restores keys that were lost from the others. False if the key is not a semaphore.
local function mend(key, slots, taken, now)
  local permits = redis.pcall('ZCARD', key)
  if type(permits) == 'table' then
    if refused(permits) then redis.call('ZCARD', key) end
    return false
  end
  local fields, there = redis.call('HLEN', slots), redis.call('ZCARD', taken) > 0
  if permits == fields and there == (permits > 0) then return true end
  local known, order = {}, {}
  for _, member in ipairs(redis.call('ZRANGE', key, 0, -1)) do
    local one, its = member:match('^(.*)|([%d,]+)$')
    if not one then return false end
    known[one], order[#order + 1] = its, one
  end
  local left = math.max(redis.call('PTTL', key), redis.call('PTTL', slots))
  if left < 1 then
    redis.call('DEL', taken)
    return permits == 0
  end
  may_keep(key, slots, taken, left)
  local all = redis.call('HGETALL', slots)
  for i = 1, #all, 2 do
    if not known[all[i]] then
      known[all[i]], order[#order + 1] = all[i + 1], all[i]
      redis.call('ZADD', key, string.format('%.0f', now + left * 1000), all[i] .. '|' .. all[i + 1])
    end
  end
  redis.call('DEL', slots, taken)
  for _, one in ipairs(order) do
    redis.call('HSET', slots, one, known[one])
    for slot in known[one]:gmatch('%d+') do redis.call('ZADD', taken, slot, slot) end
  end
  keep_all(key, slots, taken, left)
  return true
end
-- Ends a permit.
local function free(one, its)
  redis.call('ZREM', key, one .. '|' .. its)
  redis.call('HDEL', slots, one)
  for slot in its:gmatch('%d+') do redis.call('ZREM', taken, slot) end
end
-- The time until which a permit counts, if it does.
local function ends_at(one, its, now)
  local ends = its and tonumber(redis.call('ZSCORE', key, one .. '|' .. its) or 0)
  return ends and ends > now and ends
end
-- Ends permits whose leases are over, a hundred at a time. Returns whether there were any.
local function sweep(now)
  local over = redis.call('ZRANGEBYSCORE', key, '-inf', string.format('%.0f', now), 'LIMIT', 0, 100)
  for _, member in ipairs(over) do free(member:match('^(.*)|([%d,]+)$')) end
  return #over > 0
end
-- The free slot that has `before` free ones before it, by binary search in the taken slots, which are in order: before
-- the one with rank r, (its number - r) slots are free.
local function free_after(before)
  local least, most = 0, redis.call('ZCARD', taken)
  while least < most do
    local middle = math.floor((least + most) / 2)
    local slot = tonumber(redis.call('ZRANGE', taken, middle, middle)[1]) or 0
    if slot - middle > before then most = middle else least = middle + 1 end
  end
  return least + before
end
-- `count` free slots below `of`; nothing if there are too few.
local function find_free(count, of, now)
  repeat
    if free_after(count - 1) < of then
      local found = {}
      for i = 1, count do found[i] = free_after(i - 1) end
      return found
    end
  until not sweep(now)
end
-- How many of the taken slots are below this one, by binary search.
local function taken_below(slot)
  local least, most = 0, redis.call('ZCARD', taken)
  while least < most do
    local middle = math.floor((least + most) / 2)
    local other = tonumber(redis.call('ZRANGE', taken, middle, middle)[1]) or 0
    if other < slot then least = middle + 1 else most = middle end
  end
  return least
end
-- The first `count` free slots below `of` from `start` on, and behind the last one from 0 on; nothing if there are too
-- few. In ascending order: the same slots have the same text on every node.
local function find_from(start, count, of)
  local free = of - taken_below(of)
  if free < count then return end
  local before, found = start - taken_below(start), {}
  for i = 1, count do found[i] = free_after((before + i - 1) % free) end
  table.sort(found)
  return found
end
-- Draws tokens for slots, as "slot:token,...": this node's time, or the slot's last token plus 1 if that is larger.
-- `proposed`: the token to draw instead of this node's time, limited to 20 ms around it; "0" or nothing for none.
local function draw_each(found, now, micros, proposed)
  local drawn, least, text = {}, now, micros
  if proposed and proposed ~= '0' then
    least = math.max(now - 20000, math.min(now + 20000, proposed))
    text = string.format('%.0f', least)
  end
  if token_ttl ~= '0' then may_expire(tokens, token_ttl) end
  for i, slot in ipairs(found) do
    local last, token = tonumber(redis.call('HGET', tokens, slot) or 0) or 0, text
    if last >= least and last < 9007199254740991 then token = string.format('%.0f', last + 1) end
    redis.call('HSET', tokens, slot, token)
    drawn[i] = slot .. ':' .. token
  end
  if token_ttl ~= '0' then redis.call('PEXPIRE', tokens, token_ttl) end
  return table.concat(drawn, ',')
end
-- Writes a permit of these slots, "3,7", which counts until `ends`.
local function enlist(one, its, ends)
  for slot in its:gmatch('%d+') do redis.call('ZADD', taken, slot, slot) end
  redis.call('HSET', slots, one, its)
  redis.call('ZADD', key, string.format('%.0f', ends), one .. '|' .. its)
end
-- Makes a permit of free slots. The caller removes its place from the queue first, so that nothing can fail in between.
local function grant(one, found, ttl, now, micros, proposed)
  local drawn = draw_each(found, now, micros, proposed)
  enlist(one, table.concat(found, ','), now + ttl * 1000)
  keep_all(key, slots, taken, ttl)
  return drawn
end
-- The slots of a list such as "3,7" or "3:token,7:token", as a set.
local function set_of(list)
  local set = {}
  for slot in list:gmatch('(%d+)[^,]*') do set[slot] = true end
  return set
end
-- Whether a permit with the slots `its`, "" for none, can have those in `wanted`: they are free, or its own.
local function can_have(its, wanted)
  local own = set_of(its)
  for slot in pairs(set_of(wanted)) do
    if not own[slot] and redis.call('ZSCORE', taken, slot) then return false end
  end
  return true
end
-- Exchanges the slots `its` of a permit for those in `wanted`, which it can have. The keys never become empty meanwhile,
-- so they keep their TTL.
local function exchange(one, its, wanted, ends)
  local kept = set_of(wanted)
  enlist(one, wanted, ends)
  redis.call('ZREM', key, one .. '|' .. its)
  for slot in its:gmatch('%d+') do
    if not kept[slot] then redis.call('ZREM', taken, slot) end
  end
end
-- The tokens of slots, as "slot:token,...".
local function tokens_of(its)
  local drawn = {}
  for slot in its:gmatch('%d+') do drawn[#drawn + 1] = slot .. ':' .. (redis.call('HGET', tokens, slot) or 0) end
  return table.concat(drawn, ',')
end
-- The grant of the permit that this field has already, extended to `ttl`; nothing if it has none.
local function mine(ttl, now, micros)
  local its = redis.call('HGET', slots, field)
  if not its then return end
  if not ends_at(field, its, now) then return free(field, its) end
  keep_all(key, slots, taken, ttl)
  redis.call('ZADD', key, 'XX', 'GT', string.format('%.0f', now + ttl * 1000), field .. '|' .. its)
  return '1 ' .. tokens_of(its) .. ' ' .. micros
end
-- Lets in waiters in their order, as long as there is room for the first, and notifies each of their clients once.
local function let_in()
  if handover == 'i' then return announce(wake, sharded) end
  local notified = {}
  while true do
    local entry, alive_until, now, micros = first(queue, alive)
    if not entry then return end
    -- Fails before anything is granted if the key is not a hash.
    redis.call('HLEN', tokens)
    local ttl, client, count, of, one = entry:match('^(%d+)/([^/]*)/(%d+):(%d+)/(.*)$')
    -- An entry whose field has a permit already is in the queue by mistake: a field has one permit.
    local waits = ttl and redis.call('HEXISTS', slots, one) == 0
    if waits then may_keep(key, slots, taken, ttl) end
    local found = waits and find_free(tonumber(count), tonumber(of), now)
    if waits and not found then return end
    if found and handover == '0' then
      announce(wake .. ':' .. client, sharded)
      return
    end
    redis.call('ZREM', queue, entry)
    if found then
      grant(one, found, math.min(ttl, math.ceil((alive_until - now) / 1000)), now, micros)
      if not notified[client] then
        notified[client] = true
        announce(wake .. ':' .. client, sharded)
      end
    end
  end
end
