-- Ends tenures on purpose: all of an explicit owner, or all of them. Leaves a note that tells their holders why.
-- KEYS  lock, ended note
-- ARGV  1 explicit owner ("=name"), or "" for all   2 channel   3 on a cluster "1": announce to the shard, too
--       4 and on: fields; with any of them, only these tenures
-- reply how many tenures ended, -1: the key is not a lock, or -2: it is a read/write lock, which has a script of its own
local pttl = redis.call('PTTL', KEYS[1])
local all = fields(KEYS[1])
if #all == 0 then return 0 end
if is_read_write(all) then return -2 end
if pttl == -1 and not is_lock_without_ttl then return -1 end
local only = {}
for i = 4, #ARGV do only[ARGV[i]] = true end
local ended = {}
for _, field in ipairs(all) do
  if (ARGV[1] == '' or field:match('^(.*):%d+$') == ARGV[1]) and (not ARGV[4] or only[field]) then
    ended[#ended + 1] = field
    remove(KEYS[1], field)
  end
end
if #ended > 0 then
  -- The note outlives every holder's deadline. If memory is full or the right is missing, the tenures end without it.
  redis.pcall('SET', KEYS[2], ' ' .. table.concat(ended, ' ') .. ' ', 'PX', math.max(pttl, 1000))
  if redis.call('EXISTS', KEYS[1]) == 0 then announce(ARGV[2], ARGV[3]) end
end
return #ended
