-- Writes the marker of a quorum node: "<run id> <µs since when its keys are incomplete>".
-- KEYS  node marker
-- ARGV  1 "new" (a new deployment: votes immediately), "lost" (its keys are gone: quarantine from now), "init" (an
--       operator vouches for it: replaces any marker)   2 when the marker was seen missing, in this node's µs
--       then (added by the node) 3 run id, 4 and 5 unused here
-- reply 1 written, 0 a marker exists or ARGV 2 is more than a second ago
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if ARGV[1] ~= 'init' then
  if redis.call('EXISTS', KEYS[1]) == 1 or now - ARGV[2] > 1000000 then return 0 end
end
redis.call('SET', KEYS[1], ARGV[3] .. ' ' .. (ARGV[1] == 'lost' and string.format('%.0f', now) or '0'))
return 1
