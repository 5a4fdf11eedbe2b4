-- Prolongs the token counters of tenures that still hold their lock. Never shortens a TTL and never changes a counter. A
-- counter that is gone comes back as the tenure's token, unless memory is full.
-- KEYS  for each tenure: lock, token counter
-- ARGV  for each tenure: field, the tenure's token, counter ttl ms
-- reply how many of these tenures hold their lock
local held = 0
for i = 1, #KEYS / 2 do
  local counter, ttl = KEYS[2 * i], ARGV[3 * i]
  if is_mine(KEYS[2 * i - 1], ARGV[3 * i - 2]) then
    local left = redis.call('PTTL', counter)
    if left == -2 then redis.pcall('SET', counter, ARGV[3 * i - 1], 'PX', ttl)
    elseif left ~= -1 and left < tonumber(ttl) then redis.call('PEXPIRE', counter, ttl) end
    held = held + 1
  end
end
return held
