-- Raises this node's counter to the token of a quorum, unless it has granted another tenure since this one.
-- KEYS  lock, token counter
-- ARGV  1 field   2 the token that this node granted   3 the token of the quorum   4 counter ttl ms, 0 for none
-- reply 1 done, 0 the tenure ended or the counter has changed
if not holds(KEYS[1], ARGV[1]) or redis.call('GET', KEYS[2]) ~= ARGV[2] then return 0 end
set_counter(KEYS[2], ARGV[3], ARGV[4])
return 1
