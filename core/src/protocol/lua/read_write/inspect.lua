-- Reads the holders of a read/write lock. Changes nothing.
-- KEYS  lock, token counter, readers
-- reply {pttl ms, counter, "read" or "write", field, ...}, without those whose leases are over; of a hash that is another
--       lock "lock" and all its fields; pttl is -2 when nobody holds it
local mode = redis.call('HGET', lock, 'mode')
local is_read_write_lock = mode == 'read' or mode == 'write'
local reply = { redis.call('PTTL', lock), tonumber(redis.call('GET', counter) or 0) or 0, is_read_write_lock and mode or 'lock' }
local now = clock()
for _, one in ipairs(redis.call('HKEYS', lock)) do
  local alive_until = is_read_write_lock and redis.call('ZSCORE', readers, one)
  if not is_read_write_lock then
    reply[#reply + 1] = one
  elseif one ~= 'mode' and (not alive_until or tonumber(alive_until) > now) then
    reply[#reply + 1] = one:match('^(.*):write$') or one
  end
end
return reply
