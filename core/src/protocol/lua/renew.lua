-- Extends tenures that still hold their lock. Never creates one, never shortens a TTL, runs when memory is full.
-- KEYS  for each tenure: lock, ended note (or the lock again: do not read a note)
-- ARGV  for each tenure: field, ttl ms, 0 to only check
-- reply a list, for each tenure: 1 extended, 0 the key is gone, -1 another owner holds it, -2 ended on purpose
local replies = {}
for i = 1, #KEYS / 2 do
  local key, note, field, ttl = KEYS[2 * i - 1], KEYS[2 * i], ARGV[2 * i - 1], ARGV[2 * i]
  if is_mine(key, field) then
    if ttl ~= '0' and redis.call('PTTL', key) < tonumber(ttl) then redis.call('PEXPIRE', key, ttl) end
    replies[i] = 1
  else
    local ended = note ~= key and redis.pcall('GET', note)
    if refused(ended) then redis.call('GET', note) end
    if type(ended) == 'string' and ended:find(' ' .. field .. ' ', 1, true) then replies[i] = -2
    elseif redis.call('EXISTS', key) == 1 then replies[i] = -1
    else replies[i] = 0 end
  end
end
return replies
