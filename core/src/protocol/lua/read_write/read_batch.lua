-- Runs `read` for several readers of one client, whose calls differ only in their fields.
-- KEYS  as of `read`, without a marker
-- ARGV  1 the field of the first reader   2 to 11 as of `read`   12 and on: the fields of the others
-- reply a list: for each reader the reply of `read`
local function read()
  -- The script for one.
end
local replies = { read() }
local token, time = replies[1]:match('^1 (%d+) (%d+)$')
if token and redis.call('EXISTS', writers_queue, readers_queue) == 0 then
  -- The first one reads and nobody waits, so the others read as well. The lock lives as long as their leases.
  local put_fields, put_leases = { 'HSET', lock }, { 'ZADD', readers, 'GT' }
  local lease_end = time + ARGV[8] * 1000
  for i = 12, #ARGV do
    put_reader_key(ARGV[i], ARGV[8])
    put_fields[#put_fields + 1], put_fields[#put_fields + 2] = ARGV[i], '1'
    put_leases[#put_leases + 1], put_leases[#put_leases + 2] = lease_end, ARGV[i]
    replies[i - 10] = replies[1]
  end
  redis.call(unpack(put_fields))
  redis.call(unpack(put_leases))
  return replies
end
for i = 12, #ARGV do
  field = ARGV[i]
  replies[i - 10] = read()
end
return replies
