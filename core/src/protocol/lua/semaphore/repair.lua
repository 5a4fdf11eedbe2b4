-- Writes a permit again on a node that lacks it, or has it with other slots, for a holder that has it on a quorum of the
-- others. Never takes a slot of another permit, never restores a permit that was ended on purpose, never shortens a
-- lease. A node that may not vote accepts no permit.
-- KEYS, ARGV 1 to 5  as of `acquire`, then KEYS  ended note [, node marker]
-- ARGV  6 its slots and tokens, "slot:token,..."   7 ttl ms; with a marker 8 to 11 as 11 to 14 of `take`
-- reply as renew for one permit: {1} it is there, {0} it is not, {-1} it cannot have its slots, {-2} ended on purpose
local ended, marker, wanted, ttl = KEYS[7], KEYS[8], ARGV[6]:gsub(':%d+', ''), ARGV[7]
local now, micros = clock()
if marker and refuses(marker, now, ARGV[8], ARGV[9], ARGV[10], ARGV[11]) then return { 0 } end
local note = redis.call('GET', ended)
if note and note:find(' ' .. field .. ' ', 1, true) then return { -2 } end
redis.call('HLEN', tokens)
if redis.call('PTTL', key) == -1 or not mend(key, slots, taken, now) then return { -1 } end
repeat until not sweep(now)
local its = redis.call('HGET', slots, field)
if its ~= wanted then
  if not can_have(its or '', wanted) then
    if its then
      free(field, its)
      let_in(now, micros)
    end
    return { -1 }
  end
  may_keep(key, slots, taken, ttl)
  if token_ttl ~= '0' then may_expire(tokens, token_ttl) end
  -- The next grant of this node needs a higher token for each slot.
  for slot, token in ARGV[6]:gmatch('(%d+):(%d+)') do
    if (tonumber(redis.call('HGET', tokens, slot) or 0) or 0) < tonumber(token) then redis.call('HSET', tokens, slot, token) end
  end
  if token_ttl ~= '0' then redis.call('PEXPIRE', tokens, token_ttl) end
  exchange(field, its or '', wanted, now + ttl * 1000)
end
keep_all(key, slots, taken, ttl)
redis.call('ZADD', key, 'XX', 'GT', string.format('%.0f', now + ttl * 1000), field .. '|' .. wanted)
return { 1 }
