-- Visits a part of the keys and names those that look like locks. Changes nothing.
-- KEYS  none, or one key, which is visited instead
-- ARGV  1 cursor, "0" to begin   2 pattern of keys   3 about how many keys to visit
-- reply {next cursor, how many keys the server has, key, ...}; the next cursor is "0" at the end. Behind them, perhaps,
--       a list of the keys of slots that are moving to this server: only a request with ASKING may read them
-- A field that begins with ~ is the rest of a min_hold.
local function is_tenure(text) return text:find('^=.*:%d+') or text:find('^~?%x%x%x%x%x%x%x%x%-[%x%-]+:%d+') end
local function is_lock(key, kind)
  if kind == 'hash' then
    -- Some fields are enough: a hash that is no lock may be large.
    local some = redis.call('HSCAN', key, '0', 'COUNT', 10)[2]
    for i = 1, #some, 2 do
      if some[i] ~= 'mode' and not (is_tenure(some[i]) and tonumber(some[i + 1])) then return false end
    end
    return #some > 0 and not key:find('^redlock_slots:')
  elseif kind == 'zset' then
    local member = redis.call('ZRANGE', key, 0, 0)[1]
    return member and is_tenure(member) and member:find('|[%d,]+$')
  end
  return kind == 'string' and redis.call('STRLEN', key) <= 400 and is_tenure(redis.call('GET', key))
end
local page = KEYS[1] and { '0', { KEYS[1] } } or redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3])
local reply, moving = { page[1], redis.call('DBSIZE') }, {}
for _, key in ipairs(page[2]) do
  local kind = redis.pcall('TYPE', key)
  if kind.err and kind.err:find('non local key', 1, true) then
    moving[#moving + 1] = key
  elseif is_lock(key, kind.ok or redis.call('TYPE', key).ok) then
    reply[#reply + 1] = key
  end
end
if #moving > 0 then reply[#reply + 1] = moving end
return reply
