-- Wire "redisson": the lock is a hash with one field for each tenure. The value is always 1 (Redisson's hold count).
-- Defines how a tenure is found, written and removed.
local function holds(key, field) return redis.call('HEXISTS', key, field) == 1 end
local function is_mine(key, field)
  local there = redis.pcall('HEXISTS', key, field)
  if refused(there) then redis.call('HEXISTS', key, field) end
  return there == 1
end
local function fields(key) return redis.call('HKEYS', key) end
local function put(key, field, ttl)
  -- Fails for a user without the right to PEXPIRE, before a lock without a TTL exists.
  if not redis.acl_check_cmd or not redis.acl_check_cmd('PEXPIRE', key, ttl) then redis.call('PEXPIRE', key, ttl) end
  redis.call('HSET', key, field, '1')
  redis.call('PEXPIRE', key, ttl)
end
local function remove(key, field)
  local removed = redis.pcall('HDEL', key, field)
  if refused(removed) then
    -- A user without the right to write gets no error for a tenure that is not there.
    if not is_mine(key, field) then return false end
    redis.call('HDEL', key, field)
  end
  return removed == 1
end
local function rename(key, old, new, ttl)
  put(key, new, ttl)
  redis.call('HDEL', key, old)
end
-- True if every tenure on the key belongs to `owner`, so that a further one may join.
local function joins(key, owner)
  for _, field in ipairs(fields(key)) do
    if field:match('^(.*):%d+$') ~= owner then return false end
  end
  return true
end
-- Whether these are the fields of a read/write lock.
local function is_read_write(all)
  for _, field in ipairs(all) do
    if field == 'mode' then return true end
  end
  return false
end
local is_lock_without_ttl = false -- a hash without a TTL is somebody's data, not a lock
