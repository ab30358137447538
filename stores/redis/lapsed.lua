-- The leases of one bucket that have lapsed, the longest ago first. Only reads.
--
-- KEYS[1]  the bucket's `lapses`
-- ARGV[1]  how many at most
--
-- Returns the seconds and the microseconds of TIME, and a list of names, each followed by the moment of its lapse.

local time = redis.call('TIME')
local now = string.format('%.17g', time[1] + time[2] / 1e6)
local found = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'WITHSCORES', 'LIMIT', 0, ARGV[1])
return {time[1], time[2], found}
