-- Counts the listeners of channels. Changes nothing.
-- KEYS  on a cluster a key whose server to ask, or none
-- ARGV  patterns of channels
-- reply {channel, how many listen, ...}
local reply = {}
local function add(channels, command)
  for at = 1, #channels, 1000 do
    local counts = redis.call('PUBSUB', command, unpack(channels, at, math.min(at + 999, #channels)))
    for _, part in ipairs(counts) do reply[#reply + 1] = part end
  end
end
for _, pattern in ipairs(ARGV) do
  add(redis.call('PUBSUB', 'CHANNELS', pattern), 'NUMSUB')
  -- A cluster's waiters listen to channels of a shard, which servers before 7.0 do not have.
  local sharded = redis.pcall('PUBSUB', 'SHARDCHANNELS', pattern)
  if not sharded.err then add(sharded, 'SHARDNUMSUB') end
end
return reply
