-- Turns the only reader into a writer. Takes no place, and does not check the queues.
-- KEYS  lock, token counter, readers [, node marker]
-- ARGV  1 field   2 counter ttl ms, 0 for none   3 the prefix of its reader key   4 ttl ms
--       5 proposed token µs, 0 for this node's time; with a marker 6 to 9 as 12 to 15 of `read`
-- reply as of `acquire`: "1 token time" it writes, "0 pttl time" others read, "2 0 time" the tenure holds nothing here
local now, micros = clock()
if KEYS[4] then
  local code, left = refuses(KEYS[4], now, ARGV[6], ARGV[7], ARGV[8], ARGV[9])
  if code then return string.format('%d %.0f %s', code, left, micros) end
end
if writes(field) then
  keep(lock, ARGV[4])
  return '1 ' .. (redis.call('GET', counter) or 0) .. ' ' .. micros
end
if not reads(field, now) then return '2 0 ' .. micros end
purge(now)
if redis.call('HLEN', lock) > 2 then return string.format('0 %.0f %s', redis.call('PTTL', lock), micros) end
local token = draw(counter, counter_ttl, now, micros, ARGV[5])
redis.call('HDEL', lock, field)
redis.call('HSET', lock, 'mode', 'write', field .. ':write', '1')
keep(lock, ARGV[4])
redis.call('DEL', readers, reader_key(field))
return '1 ' .. token .. ' ' .. micros
