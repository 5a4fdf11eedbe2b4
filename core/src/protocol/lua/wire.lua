-- The functions that both wires share. Each script is sent with those that it uses, of this file and of its wire's.
-- Whether a reply of `redis.pcall` is an error to raise. A key of another type is not: it belongs to somebody else.
-- To raise the error, the caller runs the command again, so that the server's message names the command.
local function refused(reply) return type(reply) == 'table' and reply.err and not reply.err:find('WRONGTYPE', 1, true) end
-- Announces to waiters that the lock is free; an empty channel announces nothing. A message on a shard's channel does
-- not reach listeners of the ordinary channel, nor the other way round. Of Redisson's waiters "0", the default, wakes
-- one, and "1" wakes all.
local function announce(channel, sharded, word)
  if channel == '' then return end
  redis.pcall('PUBLISH', channel, word or '0')
  if sharded == '1' then redis.pcall('SPUBLISH', channel, word or '0') end
end
-- This node's time in µs, as a number and as text.
local function clock()
  local time = redis.call('TIME')
  -- Nine times out of ten all six digits are there, and joining the texts costs less than formatting a number.
  local micros = time[1] .. (#time[2] == 6 and time[2] or string.format('%06d', time[2]))
  return tonumber(micros), micros
end
-- Why a quorum node may not vote: 4 without a marker, 3 and the µs left in quarantine; nothing if it may vote. Records
-- a new run of the server in the marker. `since`: when keys may have been lost, µs; "0" for unknown. `durable`: "1" if
-- none can be lost.
local function refuses(marker, now, quarantine, run, since, durable)
  local mark = redis.call('GET', marker)
  if not mark then return 4, 0 end
  local known, lost = mark:match('^(%S+) (%d+)$')
  if known ~= run then
    if durable ~= '1' then lost = since ~= '0' and since or string.format('%.0f', now) end
    redis.call('SET', marker, run .. ' ' .. lost)
  end
  local left = tonumber(lost) + tonumber(quarantine) - now
  if left > tonumber(quarantine) then
    -- The loss is in the future: the clock was set back. Without a new start, the quarantine would last longer by that.
    left = tonumber(quarantine)
    redis.call('SET', marker, run .. ' ' .. string.format('%.0f', now))
  end
  if left > 0 then return 3, left end
end
-- Writes a token counter with a TTL of `ttl` ms, "0" for none. Returns the value before.
local function set_counter(counter, text, ttl)
  -- SET has the option GET since Redis 6.2. A script can only tell whether the server is 7.0 or later.
  if redis.acl_check_cmd then
    if ttl == '0' then return redis.call('SET', counter, text, 'GET') end
    return redis.call('SET', counter, text, 'PX', ttl, 'GET')
  end
  local last = redis.call('GET', counter)
  if ttl == '0' then redis.call('SET', counter, text) else redis.call('SET', counter, text, 'PX', ttl) end
  return last
end
-- Draws a fencing token: `proposed`, limited to 20 ms around this node's time, or that time if `proposed` is "0". The
-- token is at least the last one plus 2: the number in between is for readers. Returns the token as text.
local function draw(counter, ttl, now, micros, proposed)
  local token, text = now, micros
  if proposed ~= '0' then
    token = math.max(now - 20000, math.min(now + 20000, proposed))
    text = string.format('%.0f', token)
  end
  local last = set_counter(counter, text, ttl)
  -- Rare: two draws within two microseconds, or a clock that is behind. A value that is not a token was not written by
  -- a lock.
  local known = last and tonumber(last)
  if known and known + 2 > token and known < 9007199254740991 then
    text = string.format('%.0f', known + 2)
    set_counter(counter, text, ttl)
  end
  return text
end
-- Fails for a user without the right to PEXPIRE, before a key without a TTL exists. Where the server cannot check a
-- right, PEXPIRE itself is tried, and must not shorten the TTL of others.
local function may_expire(key, ttl)
  if not redis.acl_check_cmd or not redis.acl_check_cmd('PEXPIRE', key, ttl) then
    redis.call('PEXPIRE', key, string.format('%.0f', math.max(ttl, redis.call('PTTL', key))))
  end
end
-- Extends a lease in a sorted set until `ends`, µs. Never shortens it. When memory is full ZADD is refused, unlike PEXPIRE;
-- after a write ZADD is allowed, too.
local function extend_until(leases, member, ends)
  if not refused(redis.pcall('ZADD', leases, 'XX', 'GT', ends, member)) then return end
  redis.call('PEXPIRE', leases, redis.call('PTTL', leases))
  redis.call('ZADD', leases, 'XX', 'GT', ends, member)
end
