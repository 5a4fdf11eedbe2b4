-- What both wires share. Put between a wire's own prelude and each script.
-- Whether the tenure holds the lock; a key of another type is somebody else's. A missing right is an error.
local function is_mine(key, field)
  local readable, result = pcall(holds, key, field)
  if readable then return result end
  local text = type(result) == 'table' and result.err or tostring(result)
  if not text:find('WRONGTYPE', 1, true) then error(result) end
  return false
end
