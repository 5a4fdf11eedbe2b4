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
-- The client that sends the script and gets the grants of its own waiters in the reply, "" for none; and these grants: for
-- each the field and "slot:token,...".
local sender, sender_grants = '', {}
-- The slots of a permit, "3,7", as a list. Most permits have one.
local function list_of(its)
  if tonumber(its) then return { its } end
  local list = {}
  for slot in its:gmatch('%d+') do list[#list + 1] = slot end
  return list
end
-- Calls a function with a list of any length as its arguments, a thousand at a time. Returns the sum of its results. The
-- name of a command stands in the line that calls it, since the client reads there which right is missing.
local function with_each(list, call)
  local sum = 0
  for i = 1, #list, 1000 do sum = sum + call(unpack(list, i, math.min(i + 999, #list))) end
  return sum
end
-- Extends the TTL of the three keys to at least `ttl` ms, by an eighth more so that most calls need not. Runs when memory
-- is full. `left`: the TTL of the first key, if the script has read it since it last changed.
local function keep_all(key, slots, taken, ttl, left)
  if (left or redis.call('PTTL', key)) >= tonumber(ttl) then return end
  local longest = string.format('%.0f', ttl + math.floor(ttl / 8))
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
-- Restores keys that were lost from the others. Returns how many slots are taken, and whether it changed the keys; false
-- if the key is not a semaphore.
local function mend(key, slots, taken, now)
  local permits = redis.pcall('ZCARD', key)
  if type(permits) == 'table' then
    if refused(permits) then redis.call('ZCARD', key) end
    return false
  end
  local fields, count = redis.call('HLEN', slots), redis.call('ZCARD', taken)
  if permits == fields and (count > 0) == (permits > 0) then return count end
  local known, order = {}, {}
  for _, member in ipairs(redis.call('ZRANGE', key, '0', '-1')) do
    local one, its = member:match('^(.*)|([%d,]+)$')
    if not one then return false end
    known[one], order[#order + 1] = its, one
  end
  local left = math.max(redis.call('PTTL', key), redis.call('PTTL', slots))
  if left < 1 then
    if permits > 0 and redis.call('PTTL', key) == -1 then return false end
    -- The keys of permits that are all over: they may expire a millisecond apart.
    redis.call('DEL', key, slots, taken)
    return 0, true
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
  keep_all(key, slots, taken, left, -1)
  return redis.call('ZCARD', taken), true
end
-- The slots, as far as the script knows them, so that it reads nothing twice: how many were taken when it began
-- (`begun`), and those that it freed since (`freed`). Once it has looked for the free ones, these are those in `holes`,
-- the first one last, and all from `top` on; `holes` is false if only a search finds them.
local begun, freed, holes, top = nil, {}, nil, nil
-- The end of the first lease, once the script has read it.
local soonest
-- Ends a permit.
local function free(one, its)
  local list, known = list_of(its), holes or freed
  redis.call('ZREM', key, one .. '|' .. its)
  redis.call('HDEL', slots, one)
  local removed
  if not list[2] then removed = redis.call('ZREM', taken, its)
  else removed = with_each(list, function(...) return (redis.call('ZREM', taken, ...)) end) end
  if removed < #list then
    begun, freed, holes = nil, {}, nil
    return
  end
  for _, slot in ipairs(list) do known[#known + 1] = tonumber(slot) end
end
-- Sorts slots, the first one last.
local function sort_down(list) table.sort(list, function(one, other) return one > other end) end
-- The time until which a permit counts, if it does.
local function ends_at(one, its, now)
  local ends = its and tonumber(redis.call('ZSCORE', key, one .. '|' .. its) or 0)
  return ends and ends > now and ends
end
-- The end of the first lease; without permits a time that never comes.
local function first_end()
  soonest = soonest or tonumber(redis.call('ZRANGE', key, '0', '0', 'WITHSCORES')[2]) or math.huge
  return soonest
end
-- Ends permits whose leases are over, a hundred at a time. Returns whether there were any.
local function sweep(now)
  if first_end() > now then return false end
  local over = redis.call('ZRANGEBYSCORE', key, '-inf', string.format('%.0f', now), 'LIMIT', 0, 100)
  for _, member in ipairs(over) do free(member:match('^(.*)|([%d,]+)$')) end
  if holes then sort_down(holes) end
  soonest = nil
  return true
end
-- In how many ms the first lease ends, for a waiter to send again; -1 without permits.
local function until_first_end(now)
  return first_end() < math.huge and math.max(1, math.ceil((soonest - now) / 1000)) or -1
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
-- Finds out which slots are free, if a call or two suffice. A full semaphore, the usual case while others wait, has no
-- hole but those that this script made. Up to 64 slots are read as a whole; more are left to a search.
local function look_for_holes()
  local count = begun or redis.call('ZCARD', taken) + #freed
  local last = count > #freed and tonumber(redis.call('ZREVRANGE', taken, '0', '0')[1]) or -1
  for _, slot in ipairs(freed) do last = math.max(last, slot) end
  if last + 1 == count then
    holes, top = freed, count
    if #holes > 1 then sort_down(holes) end
  elseif last < 64 then
    holes, top = {}, last + 1
    local is_taken = {}
    for _, slot in ipairs(redis.call('ZRANGE', taken, '0', '-1')) do is_taken[tonumber(slot) or -1] = true end
    for slot = last, 0, -1 do
      if not is_taken[slot] then holes[#holes + 1] = slot end
    end
  else
    holes = false
  end
end
-- The first `count` free slots below `of`; nothing if there are too few.
local function first_free(count, of)
  if holes == nil then look_for_holes() end
  local found = {}
  if holes then
    for i = 1, count do
      found[i] = holes[#holes - i + 1] or top + i - #holes - 1
      if found[i] >= of then return end
    end
    return found
  end
  local last = free_after(count - 1)
  if last >= of then return end
  for i = 1, count - 1 do found[i] = free_after(i - 1) end
  found[count] = last
  return found
end
-- The same, after the permits whose leases are over have ended if there are too few.
local function find_free(count, of, now)
  repeat
    local found = first_free(count, of)
    if found then return found end
  until not sweep(now)
end
-- Whether this entry of the queue wants one slot, and none is free.
local function finds_it_full(entry, now)
  local of = entry:match('^%d+/[^/]*/1:(%d+)/')
  return of and not find_free(1, tonumber(of), now)
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
-- The last token of each of these slots. Fails if the key is not a hash, so it comes before anything is granted.
local function last_tokens(found)
  local last = {}
  for i, slot in ipairs(found) do last[i] = tonumber(redis.call('HGET', tokens, slot) or 0) or 0 end
  return last
end
-- Draws tokens for slots, as "slot:token,...": this node's time, or the slot's last token plus 1 if that is larger.
-- `proposed`: the token to draw instead of this node's time, limited to 20 ms around it; "0" or nothing for none.
local function draw_each(found, last, now, micros, proposed)
  local drawn, new, least, text = {}, {}, now, micros
  if proposed and proposed ~= '0' then
    least = math.max(now - 20000, math.min(now + 20000, proposed))
    text = string.format('%.0f', least)
  end
  if token_ttl ~= '0' then may_expire(tokens, token_ttl) end
  for i, slot in ipairs(found) do
    local token = text
    if last[i] >= least and last[i] < 9007199254740991 then token = string.format('%.0f', last[i] + 1) end
    new[2 * i - 1], new[2 * i] = slot, token
    drawn[i] = slot .. ':' .. token
  end
  if not found[2] then redis.call('HSET', tokens, new[1], new[2])
  else with_each(new, function(...) return (redis.call('HSET', tokens, ...)) end) end
  if token_ttl ~= '0' then redis.call('PEXPIRE', tokens, token_ttl) end
  return table.concat(drawn, ',')
end
-- Writes a permit of these slots, "3,7", which counts until `ends`.
local function enlist(one, its, ends)
  local list, ranked = list_of(its), {}
  if not list[2] then redis.call('ZADD', taken, its, its)
  else
    for i, slot in ipairs(list) do ranked[2 * i - 1], ranked[2 * i] = slot, slot end
    with_each(ranked, function(...) return (redis.call('ZADD', taken, ...)) end)
  end
  redis.call('HSET', slots, one, its)
  redis.call('ZADD', key, ends, one .. '|' .. its)
end
-- Makes a permit of free slots, whose last tokens are `last`. The caller removes its place from the queue first, so that
-- nothing can fail in between.
local function grant(one, found, last, ttl, now, micros, proposed)
  local drawn, ends = draw_each(found, last, now, micros, proposed), now + ttl * 1000
  enlist(one, table.concat(found, ','), ends)
  keep_all(key, slots, taken, ttl)
  soonest = soonest and math.min(soonest, ends)
  -- If the script knows the free slots, these were the first of them.
  for _ = 1, holes and #found or 0 do
    if not table.remove(holes) then top = top + 1 end
  end
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
  for i, slot in ipairs(list_of(its)) do drawn[i] = slot .. ':' .. (redis.call('HGET', tokens, slot) or 0) end
  return table.concat(drawn, ',')
end
-- The grant of the permit that this field has already, extended to `ttl`; nothing if it has none. `left`: as of
-- `keep_all`.
local function mine(ttl, now, micros, left)
  local its = redis.call('HGET', slots, field)
  if not its then return end
  if not ends_at(field, its, now) then return free(field, its) end
  local drawn = tokens_of(its)
  keep_all(key, slots, taken, ttl, left)
  extend_until(key, field .. '|' .. its, now + ttl * 1000)
  return '1 ' .. drawn .. ' ' .. micros
end
-- Lets in waiters in their order, as long as there is room for the first, and notifies each of their clients once, but for
-- the sender.
-- Returns the first of those that wait on, and until when its client counts as alive. `entry`, `alive_until`: the first
-- waiter, if the script has looked for it.
local function let_in(now, micros, entry, alive_until)
  if handover == 'i' then
    announce(wake, sharded)
    return entry, alive_until
  end
  local notified = {}
  while true do
    if not entry then entry, alive_until = first(queue, alive, now) end
    if not entry then return end
    local ttl, client, count, of, one = entry:match('^(%d+)/([^/]*)/(%d+):(%d+)/(.*)$')
    local found = ttl and find_free(tonumber(count), tonumber(of), now)
    -- An entry whose field has a permit already is in the queue by mistake: a field has one permit. If every slot is
    -- taken, nobody behind it can have one either, and it may stay for now.
    local is_full = ttl and not found and count == '1'
    local has_permit = ttl and not is_full and redis.call('HEXISTS', slots, one) == 1
    if ttl and not found and not has_permit then return entry, alive_until end
    if has_permit then found = nil end
    if found and handover == '0' then
      announce(wake .. ':' .. client, sharded)
      return entry, alive_until
    end
    local last = found and last_tokens(found)
    if found then may_keep(key, slots, taken, ttl) end
    redis.call('ZREM', queue, entry)
    if found then
      local is_sender = client == sender
      -- The sender is alive and learns of the grant now; another client may be dead.
      local lease = is_sender and tonumber(ttl) or math.min(ttl, math.ceil((alive_until - now) / 1000))
      local drawn = grant(one, found, last, lease, now, micros)
      if is_sender then
        sender_grants[#sender_grants + 1], sender_grants[#sender_grants + 2] = one, drawn
      elseif not notified[client] then
        notified[client] = true
        announce(wake .. ':' .. client, sharded)
      end
    end
    entry = nil
  end
end
