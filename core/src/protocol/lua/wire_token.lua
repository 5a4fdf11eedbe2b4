-- Wire "token": the lock is a string with the tenure as its value, as SET NX PX writes it.
-- Defines how a tenure is found, written and removed.
local function holds(key, field) return redis.call('GET', key) == field end
local function is_mine(key, field)
  local value = redis.pcall('GET', key)
  if refused(value) then redis.call('GET', key) end
  return value == field
end
local function fields(key)
  local value = redis.call('GET', key)
  return value and { value } or {}
end
local function put(key, field, ttl)
  if tonumber(ttl) == -1 then redis.call('SET', key, field) else redis.call('SET', key, field, 'PX', ttl) end
end
local function remove(key, field) return is_mine(key, field) and redis.call('DEL', key) == 1 end
local function rename(key, _, new, ttl) put(key, new, ttl) end
local function joins() return false end -- a string has room for one tenure
local function is_read_write() return false end -- its key is no string
local is_lock_without_ttl = true -- some peers lock without a TTL
