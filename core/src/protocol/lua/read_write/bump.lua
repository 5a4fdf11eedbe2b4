-- Raises this node's counter to the token of a quorum: for a writer unless another token was drawn here since, for a
-- reader to its token minus 1.
-- KEYS  lock, token counter, readers
-- ARGV  1 field   2 counter ttl ms, 0 for none   3 the prefix of its reader key   4 the token that this node granted
--       5 the token of the quorum
-- reply 1 done, 0 the tenure ended or the counter has changed
if writes(field) then
  if redis.call('GET', counter) ~= ARGV[4] then return 0 end
  set_counter(counter, ARGV[5], counter_ttl)
  return 1
end
-- While a reader holds the lock, no writer draws a token.
if redis.call('HEXISTS', lock, field) == 0 then return 0 end
if (tonumber(redis.call('GET', counter) or 0) or 0) < ARGV[5] - 1 then
  set_counter(counter, string.format('%.0f', ARGV[5] - 1), counter_ttl)
end
return 1
