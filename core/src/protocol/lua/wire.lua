-- What both wires share. Of this and then of a wire's own prelude each script gets in front what it mentions.
-- Whether a reply of `redis.pcall` is an error that has to be told. A key of another type is somebody else's, and none.
-- To tell it, the command is called again: so the server names it.
local function refused(reply) return type(reply) == 'table' and reply.err and not reply.err:find('WRONGTYPE', 1, true) end
-- Tells waiters that the lock is free, unless there is no channel to tell them on. Listeners of a shard's channels hear
-- nothing of the others, nor these of them.
local function announce(channel, sharded)
  if channel == '' then return end
  redis.pcall('PUBLISH', channel, '0')
  if sharded == '1' then redis.pcall('SPUBLISH', channel, '0') end
end
-- Why a quorum node may not vote: 4 without a marker, 3 and the µs left in quarantine; nothing when it may. Notes a new
-- run of the server. `since`: when keys may have been lost, µs; "0" for unknown. `durable`: "1" when none can be.
local function refuses(marker, now, quarantine, run, since, durable)
  local mark = redis.call('GET', marker)
  if not mark then return 4, 0 end
  local known, lost = mark:match('^(%S+) (%d+)$')
  if known ~= run then
    if durable ~= '1' then lost = since ~= '0' and since or string.format('%.0f', now) end
    redis.call('SET', marker, run .. ' ' .. lost)
  end
  local left = tonumber(lost) + tonumber(quarantine) - now
  if left > 0 then return 3, left end
end
-- Writes a token counter, which lives for `ttl` ms, "0" for ever. Returns what was there.
local function write(counter, text, ttl)
  -- SET knows GET since 6.2; 7.0 can be told from those before.
  if redis.acl_check_cmd then
    if ttl == '0' then return redis.call('SET', counter, text, 'GET') end
    return redis.call('SET', counter, text, 'PX', ttl, 'GET')
  end
  local last = redis.call('GET', counter)
  if ttl == '0' then redis.call('SET', counter, text) else redis.call('SET', counter, text, 'PX', ttl) end
  return last
end
