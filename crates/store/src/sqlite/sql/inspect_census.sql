-- Counts per lane and state, each capped. Live jobs are counted by where they are; those in line and aside are ready.
select lane, state, min(count(*), ?1) from (
    select lane, 'live' as state from jobs where state = 0
    union all select lane, 'done' from jobs where state = 1
    union all select lane, 'failed' from jobs where state = 2
    union all select lane, 'cancelled' from jobs where state = 3
    union all select abs(lane), 'ready' from ready
    union all select j.lane, 'ready' from line l join jobs j on j.id = l.job
    union all select lane, 'ready' from jobs where state = 0 and hold = 2
    union all select j.lane, 'scheduled' from timers t join jobs j on j.id = t.job where t.what = 0
) group by lane, state
