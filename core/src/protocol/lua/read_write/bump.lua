-- Raises this node's counter to what a quorum agreed on: for a writer only if nobody drew a token here since, for a reader to
-- the one below its token.
-- KEYS  lock, token counter, readers
-- ARGV  1 field   2 counter ttl ms, 0 for none   3 what its key begins with   4 the token this node granted me   5 the token
--       of the quorum
-- reply 1 done, 0 the tenure ended or the counter moved on
if writes(field) then
  if redis.call('GET', counter) ~= ARGV[4] then return 0 end
  write(counter, ARGV[5], counter_ttl)
  return 1
end
-- A reader that is there keeps writers from drawing.
if redis.call('HEXISTS', lock, field) == 0 then return 0 end
if (tonumber(redis.call('GET', counter) or 0) or 0) < ARGV[5] - 1 then
  write(counter, string.format('%.0f', ARGV[5] - 1), counter_ttl)
end
return 1
