-- What both wires share. Put between a wire's own prelude and each script.
-- What `read` finds; nothing in a key of another type, which is somebody else's. A missing right is an error.
local function found(read, ...)
  local readable, result = pcall(read, ...)
  if readable then return result end
  local text = type(result) == 'table' and result.err or tostring(result)
  if not text:find('WRONGTYPE', 1, true) then error(result) end
end
-- Whether the tenure holds the lock.
local function is_mine(key, field) return found(holds, key, field) end
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
