-- Learns how long a lock is held, for adaptive leases: average = 0.8 average + 0.2 sample.
-- KEYS  hold average
-- ARGV  1 sample µs, -1 to only read   2 ttl ms of the average
-- reply the average in µs, 0 for none yet
local average = tonumber(redis.call('GET', KEYS[1]) or 0)
local sample = tonumber(ARGV[1])
if sample < 0 then return average end
average = average == 0 and sample or 0.8 * average + 0.2 * sample
redis.call('SET', KEYS[1], string.format('%.0f', average), 'PX', ARGV[2])
return average
