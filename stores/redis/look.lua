-- Reads rows and the server's clock, at one moment.
--
-- KEYS[1]   the bucket's `store` key
-- KEYS[2…]  hashes
-- ARGV      for each of those hashes how many fields are asked for, and then these
--
-- Returns the seconds and the microseconds of TIME, the value of the `store` key (nil if there is none), and for each
-- hash the list of its fields' values (nil where there is none).

local time = redis.call('TIME')
local answer = {time[1], time[2], redis.call('GET', KEYS[1])}
local at = 1
for number = 2, #KEYS do
  local fields = tonumber(ARGV[at])
  answer[number + 2] = redis.call('HMGET', KEYS[number], unpack(ARGV, at + 1, at + fields))
  at = at + fields + 1
end
return answer
