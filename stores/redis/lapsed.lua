-- What of one bucket has lapsed, the longest ago first, or will have soon: leases, or requests. Only reads.
--
-- KEYS[1]  the bucket's `lapses`, or its `expiries`
-- ARGV[1]  how many at most, -1 for all
-- ARGV[2]  by when they have lapsed, in seconds from now
--
-- Returns the seconds and the microseconds of TIME, and a list of names, each followed by the moment of its lapse.

local time = redis.call('TIME')
local by = string.format('%.17g', time[1] + time[2] / 1e6 + ARGV[2])
local found = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', by, 'WITHSCORES', 'LIMIT', 0, ARGV[1])
return {time[1], time[2], found}
