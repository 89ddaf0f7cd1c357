-- Counts per lane and state, each capped. Live jobs are counted by where they are; those in line and aside are ready.
select lane, state, min(count(*), ?1) from (
    select lane, 'live' as state from windlass_jobs where state = 0
    union all select lane, 'done' from windlass_jobs where state = 1
    union all select lane, 'failed' from windlass_jobs where state = 2
    union all select lane, 'cancelled' from windlass_jobs where state = 3
    union all select abs(lane), 'ready' from windlass_ready
    union all select j.lane, 'ready' from windlass_line l join windlass_jobs j on j.id = l.job
    union all select lane, 'ready' from windlass_jobs where state = 0 and hold = 2
    union all select lane, 'waiting' from windlass_jobs where state = 0 and parked is not null
    union all select j.lane, 'scheduled' from windlass_timers t join windlass_jobs j on j.id = t.job
              where t.what = 0 and j.parked is null
) group by lane, state
