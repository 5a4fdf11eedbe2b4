-- Runs `leave` for several readers of one client, whose calls differ only in their fields.
-- KEYS  as of `leave`
-- ARGV  1 the field of the first reader   2 to 8 as of `leave`, without an entry   9 and on: the fields of the others
-- reply a list: for each reader the reply of `leave`
local replies, fields = {}, { field }
for i = 9, #ARGV do fields[i - 7] = ARGV[i] end
local next_one, last = 1, #fields
if redis.pcall('HGET', lock, 'mode') == 'read' and reads(fields[last], (clock())) then
  -- The last one still reads, so nobody else may enter before it leaves.
  local remove_leases, remove_keys = { 'ZREM', readers }, { 'DEL' }
  for i = 1, last - 1 do
    replies[i] = redis.call('HDEL', lock, fields[i])
    if replies[i] == 1 then
      remove_leases[#remove_leases + 1] = fields[i]
      remove_keys[#remove_keys + 1] = reader_key(fields[i])
    end
  end
  if #remove_keys > 1 then
    redis.call(unpack(remove_leases))
    redis.call(unpack(remove_keys))
  end
  next_one = last
end
local function leave()
  -- The script for one.
end
for i = next_one, last do
  field = fields[i]
  replies[i] = leave()
end
return replies
