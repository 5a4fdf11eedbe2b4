-- Ends all permits of a semaphore on purpose, and lets in waiters. Leaves a note that tells the holders why.
-- KEYS  semaphore, slots of each field, slots that are taken, tokens of each slot, queue, clients that are alive, ended note
-- ARGV  1 to 5 as of `acquire`, without a field
-- reply how many permits ended, or -1: the key is not a semaphore
local now, micros = clock()
local pttl = redis.call('PTTL', key)
if pttl == -1 or not mend(key, slots, taken, now) then return -1 end
local all = redis.call('HKEYS', slots)
if #all == 0 then return 0 end
redis.call('DEL', key, slots, taken)
-- The note outlives every holder's deadline. If memory is full or the right is missing, the permits end without it.
redis.pcall('SET', KEYS[7], ' ' .. table.concat(all, ' ') .. ' ', 'PX', math.max(pttl, 1000))
let_in(now, micros)
return #all
