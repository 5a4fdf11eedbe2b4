-- Reads the permits of a semaphore. Changes nothing.
-- KEYS  semaphore
-- reply a list, for each permit whose lease is not over: field, its slots "3,7", the rest of its lease in ms; only -1 if
--       the key is not a semaphore
local now = clock()
local reply = {}
local all = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
for i = 1, #all, 2 do
  local one, its = all[i]:match('^(.*)|([%d,]+)$')
  if not one then return -1 end
  if tonumber(all[i + 1]) > now then
    reply[#reply + 1] = one
    reply[#reply + 1] = its
    reply[#reply + 1] = math.ceil((all[i + 1] - now) / 1000)
  end
end
return reply
