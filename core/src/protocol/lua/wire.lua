-- What both wires share. Of this and then of a wire's own prelude each script gets in front what it mentions.
-- Whether a reply of `redis.pcall` is an error that has to be told. A key of another type is somebody else's, and none.
-- To tell it, the command is called again: so the server names it.
local function refused(reply) return type(reply) == 'table' and reply.err and not reply.err:find('WRONGTYPE', 1, true) end
-- Tells waiters that the lock is free, unless there is no channel to tell them on. Listeners of a shard's channels hear
-- nothing of the others, nor these of them. To Redisson's waiters "0" wakes one, which is the usual word, "1" all.
local function announce(channel, sharded, word)
  if channel == '' then return end
  redis.pcall('PUBLISH', channel, word or '0')
  if sharded == '1' then redis.pcall('SPUBLISH', channel, word or '0') end
end
-- This node's time in µs, as a number and as text.
local function clock()
  local time = redis.call('TIME')
  -- Mostly all six digits are there; putting them together costs less than writing a number down.
  local micros = time[1] .. (#time[2] == 6 and time[2] or string.format('%06d', time[2]))
  return tonumber(micros), micros
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
-- Draws a fencing token: `proposed`, as far as that is within 20 ms of this node's time; that time if it is "0"; or the
-- second above the last, since the one between is for those who read after that. Returns it as text.
local function draw(counter, ttl, now, micros, proposed)
  local token, text = now, micros
  if proposed ~= '0' then
    token = math.max(now - 20000, math.min(now + 20000, proposed))
    text = string.format('%.0f', token)
  end
  local last = write(counter, text, ttl)
  -- Rarely: drawn within two microseconds, or the clock is behind. What is no token was not written by a lock.
  local known = last and tonumber(last)
  if known and known + 2 > token and known < 9007199254740991 then
    text = string.format('%.0f', known + 2)
    write(counter, text, ttl)
  end
  return text
end
-- A user without this right fails here, before a key without a TTL exists. Where there is nothing to ask, trying must not
-- shorten what others have.
local function may_expire(key, ttl)
  if not redis.acl_check_cmd or not redis.acl_check_cmd('PEXPIRE', key, ttl) then
    redis.call('PEXPIRE', key, string.format('%.0f', math.max(ttl, redis.call('PTTL', key))))
  end
end
