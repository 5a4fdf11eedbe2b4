-- Ends all tenures of a read/write lock on purpose. Leaves a note that tells their holders why.
-- KEYS  lock, token counter, readers, ended note
-- ARGV  1 the prefix of its reader keys   2, 3 channels: an exclusive lock's, a read/write lock's   4 on a
--       cluster "1": announce to the shard, too
--       5 and on: fields; with any of them, only if one of these tenures is there
-- reply how many tenures ended, or -1: the key is not a read/write lock
local pttl = redis.call('PTTL', lock)
if pttl == -2 then return 0 end
local mode = redis.call('HGET', lock, 'mode')
if pttl == -1 or mode ~= 'read' and mode ~= 'write' then return -1 end
local ended = {}
for _, one in ipairs(redis.call('HKEYS', lock)) do
  if one ~= 'mode' then ended[#ended + 1] = one:match('^(.*):write$') or one end
end
local only, is_there = {}, not ARGV[5]
for i = 5, #ARGV do only[ARGV[i]] = true end
for _, one in ipairs(ended) do is_there = is_there or only[one] end
if not is_there then return 0 end
for _, one in ipairs(ended) do redis.call('DEL', ARGV[1] .. ':' .. one .. ':rwlock_timeout:1') end
redis.call('DEL', lock, readers)
-- The note outlives every holder's deadline. If memory is full or the right is missing, the tenures end without it.
redis.pcall('SET', KEYS[4], ' ' .. table.concat(ended, ' ') .. ' ', 'PX', math.max(pttl, 1000))
announce(ARGV[2], ARGV[4])
announce(ARGV[3], ARGV[4], '1')
return #ended
