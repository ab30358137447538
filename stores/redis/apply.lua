-- Writes all of an operation, or nothing: the compare-and-set behind every write. stores/redis/transaction.py says why
-- that is enough.
--
-- KEYS[1]     the bucket's `store` key
-- KEYS[2…]    the rows that the operation has read, then whatever else it writes
-- ARGV[1]     what the `store` key held as the rows were read
-- ARGV[2]     the stamp that this operation writes
-- ARGV[3]     how many rows it has read; then the stamp of each as it was read, '' for one that was not there
-- ARGV[…]     the commands: how many arguments, the name, the number of the key in KEYS, and the arguments. Beside Redis'
--             own there is SEGMENT (key, field, value, end, digest): store a value where there is none yet, and only
--             then the digest in the field `end`.
--
-- Returns 1 once it is written, also where it was written before, by the very same request; 0 if a row has moved; and
-- -1 if the store has (another format or epoch, or none). Commands that add come first, so that a server without
-- memory, or without the right to write, refuses the first of them, when nothing has been written yet.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return -1
end
local rows = tonumber(ARGV[3])
if rows > 0 and redis.call('HGET', KEYS[2], 'stamp') == ARGV[2] then
  return 1
end
for number = 1, rows do
  if (redis.call('HGET', KEYS[number + 1], 'stamp') or '') ~= ARGV[number + 3] then
    return 0
  end
end

local at = rows + 4
while at <= #ARGV do
  local name, key, first, last = ARGV[at + 1], KEYS[tonumber(ARGV[at + 2])], at + 3, at + 2 + tonumber(ARGV[at])
  if name == 'SEGMENT' then
    if redis.call('HSETNX', key, ARGV[first], ARGV[first + 1]) == 1 then
      redis.call('HSET', key, ARGV[first + 2], ARGV[first + 3])
    end
  else
    redis.call(name, key, unpack(ARGV, first, last))
  end
  at = last + 1
end
return 1
