-- Extends permits that still count. Never creates one, never shortens a lease, runs when memory is full.
-- KEYS  for each permit: semaphore, ended note, slots of each field, slots that are taken
-- ARGV  for each permit: field, ttl ms, 0 to only check, its slots, "3,7": with others it does not count
-- reply a list, for each permit: 1 extended, 0 there are no permits, -1 this permit is over, -2 ended on purpose
local replies = {}
local now = clock()
for i = 1, #KEYS / 4 do
  local sem, ended, hash, set = KEYS[4 * i - 3], KEYS[4 * i - 2], KEYS[4 * i - 1], KEYS[4 * i]
  local name, ttl, wanted = ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i]
  local its = mend(sem, hash, set, now) and redis.call('HGET', hash, name)
  local ends = its == wanted and tonumber(redis.call('ZSCORE', sem, name .. '|' .. its) or 0)
  if ends and ends > now then
    if ttl ~= '0' then
      keep_all(sem, hash, set, ttl)
      extend_until(sem, name .. '|' .. its, string.format('%.0f', now + ttl * 1000))
    end
    replies[i] = 1
  else
    local note = redis.pcall('GET', ended)
    if type(note) == 'string' and note:find(' ' .. name .. ' ', 1, true) then replies[i] = -2
    elseif redis.call('EXISTS', sem) == 1 then replies[i] = -1
    else replies[i] = 0 end
  end
end
return replies
