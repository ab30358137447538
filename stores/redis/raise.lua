-- Raises a bucket's epoch, or makes the bucket; never lowers it.
--
-- KEYS[1]  the bucket's `store` key
-- ARGV[1]  the format
-- ARGV[2]  the epoch that it has to have at least
-- ARGV[3]  by how much it has to rise above that: 1 for the bucket that decides, 0 for those that follow
-- ARGV[4]  the highest epoch that there can be
--
-- Returns the epoch of the bucket now; -1 if there is no room above it; and what stands there, as a text, if that is
-- another format.

local stands = redis.call('GET', KEYS[1])
local epoch = 0
if stands then
  local format, number = string.match(stands, '^(%d+):(%d+)$')
  if format ~= ARGV[1] then
    return stands
  end
  epoch = tonumber(number)
end
local raised = math.max(epoch, tonumber(ARGV[2])) + tonumber(ARGV[3])
if raised > tonumber(ARGV[4]) then
  return -1
end
redis.call('SET', KEYS[1], ARGV[1] .. ':' .. string.format('%d', raised))
return raised
