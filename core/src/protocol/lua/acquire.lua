-- Takes the lock for one tenure and draws its fencing token. Sending it twice changes nothing, but for a value of the
-- caller's choosing ("!"): that one is granted only where there is no key, of whatever type, as SET NX does it.
-- KEYS  lock, token counter [, node marker]
-- ARGV  1 field (the tenure)       2 explicit owner ("=name"), "" or "!"   3 ttl ms, -1 for none
--       4 proposed token µs, 0 for this node's time     5 how far from this node's time a proposal may lie, µs
--       6 counter ttl ms, 0 for none
--       with a marker: 7 quarantine µs, then (added by the node) 8 run id, 9 when keys may have been lost, µs,
--       0 for unknown, 10 "1" when every write is on disk before its reply
-- reply {1, token, time µs}    granted
--       {0, pttl ms, time µs}  somebody else holds it
--       {2, 0, time µs}        the key is no lock
--       {3, µs left, time µs}  the node is in quarantine
--       {4, 0, time µs}        the node has no marker
local key, counter, marker, field, ttl = KEYS[1], KEYS[2], KEYS[3], ARGV[1], tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

if marker then
  local code, left = refuses(marker, now, ARGV[7], ARGV[8], ARGV[9], ARGV[10])
  if code then return { code, left, now } end
end

if ARGV[2] ~= '!' and holds(key, field) then
  if redis.call('PTTL', key) < ttl then redis.call('PEXPIRE', key, ttl) end
  return { 1, tonumber(redis.call('GET', counter) or 0), now }
end

local pttl = redis.call('PTTL', key)
if pttl ~= -2 then
  if pttl == -1 and not eternal_is_lock then return { 2, 0, now } end
  if ARGV[2] == '' or not joins(key, ARGV[2]) then return { 0, pttl, now } end
  ttl = math.max(ttl, pttl)
end

local token = tonumber(redis.call('GET', counter) or 0) + 1
local proposal = tonumber(ARGV[4])
if proposal == 0 then proposal = now end
proposal = math.max(now - ARGV[5], math.min(now + ARGV[5], proposal))
token = math.max(token, proposal)
local text = string.format('%.0f', token)
if ARGV[6] == '0' then redis.call('SET', counter, text) else redis.call('SET', counter, text, 'PX', ARGV[6]) end
put(key, field, ttl)
return { 1, token, now }
