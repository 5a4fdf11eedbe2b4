-- Raises this node's tokens of a permit's slots to those of a quorum, unless another permit has drawn one since.
-- KEYS  as of `acquire`, without the queue
-- ARGV  1 field   2 token ttl ms, 0 for none   3 the tokens that this node granted, "slot:token,..."
--       4 the tokens of the quorum, alike
-- reply 1 done, 0 the permit is over or a token has changed
local its = redis.call('HGET', slots, field)
if not its then return 0 end
local own = set_of(its)
for slot, token in ARGV[3]:gmatch('(%d+):(%d+)') do
  if not own[slot] or redis.call('HGET', tokens, slot) ~= token then return 0 end
end
if token_ttl ~= '0' then may_expire(tokens, token_ttl) end
for slot, token in ARGV[4]:gmatch('(%d+):(%d+)') do redis.call('HSET', tokens, slot, token) end
if token_ttl ~= '0' then redis.call('PEXPIRE', tokens, token_ttl) end
return 1
