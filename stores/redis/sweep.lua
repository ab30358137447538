-- Notes the beginning of a sweep.
--
-- KEYS[1]  `swept`
--
-- Returns the seconds and the microseconds of TIME, and when the last sweep began (nil if none ever did).

local time = redis.call('TIME')
local last = redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], string.format('%.17g', time[1] + time[2] / 1e6))
return {time[1], time[2], last}
