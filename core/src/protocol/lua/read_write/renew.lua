-- Extends tenures that are still there. Never creates one, never shortens a TTL, runs when memory is full.
-- KEYS  for each tenure: lock, ended note, readers
-- ARGV  for each tenure: field, ttl ms, 0 to only check, the prefix of its reader key
-- reply a list, for each tenure: 1 a writer's was extended, 2 a reader's was extended, 0 the key is gone, -1 another owner
--       holds it, -2 ended on purpose
local replies = {}
local now = clock()
for i = 1, #KEYS / 3 do
  local key, ended, its_readers = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
  local name, ttl, prefix = ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i]
  if is_mine(key, name .. ':write') then
    if ttl ~= '0' then keep(key, ttl) end
    replies[i] = 1
  elseif is_mine(key, name) and tonumber(redis.call('ZSCORE', its_readers, name) or 0) > now then
    if ttl ~= '0' then
      keep(key, ttl)
      keep(prefix .. ':' .. name .. ':rwlock_timeout:1', ttl)
      keep(its_readers, ttl)
      extend_until(its_readers, name, string.format('%.0f', now + ttl * 1000))
    end
    replies[i] = 2
  else
    local note = redis.pcall('GET', ended)
    if type(note) == 'string' and note:find(' ' .. name .. ' ', 1, true) then replies[i] = -2
    elseif redis.call('EXISTS', key) == 1 then replies[i] = -1
    else replies[i] = 0 end
  end
end
return replies
