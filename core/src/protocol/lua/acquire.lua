-- Acquires the lock for one tenure and draws its fencing token. A second run only confirms the grant; of an explicit
-- owner it draws anew, as another of its tenures may have the last token. Exception: a chosen value ("!") is granted
-- only if the key does not exist, like SET NX.
-- KEYS  lock, token counter [, node marker]
-- ARGV  1 field (the tenure)       2 explicit owner ("=name"), "" or "!"   3 ttl ms, -1 for none
--       4 counter ttl ms, 0 for none        5 proposed token µs, 0 for this node's time
--       with a marker: 6 quarantine µs, then (added by the node) 7 run id, 8 when keys may have been lost, µs,
--       0 for unknown, 9 "1" when every write is on disk before its reply
-- reply a string of three numbers: a code, its value, and this node's time in µs
--       "1 token time"    granted
--       "0 pttl time"     another owner holds it, for pttl ms; -1: without end
--       "2 0 time"        the key is not a lock
--       "3 left time"     the node is in quarantine, for left µs
--       "4 0 time"        the node has no marker
local key, counter, marker, field, ttl = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[3]
local now, micros = clock()

if marker then
  local code, left = refuses(marker, now, ARGV[6], ARGV[7], ARGV[8], ARGV[9])
  if code then return string.format('%d %.0f %s', code, left, micros) end
end

local pttl = redis.call('PTTL', key)
if pttl ~= -2 then
  if ARGV[2] ~= '!' and holds(key, field) then
    if pttl < tonumber(ttl) then redis.call('PEXPIRE', key, ttl) end
    local token = ARGV[2] == '' and (redis.call('GET', counter) or 0) or draw(counter, ARGV[4], now, micros, ARGV[5])
    return '1 ' .. token .. ' ' .. micros
  end
  if pttl == -1 and not is_lock_without_ttl then return '2 0 ' .. micros end
  if ARGV[2] == '' or not joins(key, ARGV[2]) then return string.format('0 %.0f %s', pttl, micros) end
  if tonumber(ttl) < pttl then ttl = string.format('%.0f', pttl) end
end

local token = draw(counter, ARGV[4], now, micros, ARGV[5])
put(key, field, ttl)
return '1 ' .. token .. ' ' .. micros
