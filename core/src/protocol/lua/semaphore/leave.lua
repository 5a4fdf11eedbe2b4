-- Ends one permit, or gives up its place in the queue, and lets in the next waiters. Runs when memory is full.
-- KEYS, ARGV  1 to 5 as of `acquire`   6 its entry, or "" for a permit that was granted: it has none
--             7 the client that gets the grants of its own waiters in the reply, and no message for them; "" for none
-- reply 1 released, 0 the permit was over; if waiters of that client were let in, a list: this number, and for each
--       its field and "slot:token,..."
sender = ARGV[7]
local now, micros = clock()
local left = ARGV[6] ~= '' and redis.call('ZREM', queue, ARGV[6]) == 1
begun = mend(key, slots, taken, now)
local its = begun and redis.call('HGET', slots, field)
if not begun or not its and not left then return 0 end
local released = ends_at(field, its, now) and 1 or 0
if its then free(field, its) end
local entry, alive_until
if handover ~= 'i' then
  entry, alive_until = first(queue, alive, now)
  if not entry then return released end
end

-- Functions of the rest.
let_in(now, micros, entry, alive_until)
if #sender_grants == 0 then return released end
table.insert(sender_grants, 1, released)
return sender_grants
