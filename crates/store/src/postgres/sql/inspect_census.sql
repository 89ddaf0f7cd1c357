-- Counts per lane and state, each capped. Live jobs are counted by where they are.
select lane, state, least(count(*), $1) from (
    select lane, case state when 0 then 'live' when 1 then 'done' when 2 then 'failed' else 'cancelled' end as state
    from jobs
    union all select abs(lane), 'ready' from ready
    union all select j.lane, 'ready' from line w join jobs j on j.id = w.job
    union all select lane, 'ready' from jobs where state = 0 and hold = 2
    union all select j.lane, 'scheduled' from timers t join jobs j on j.id = t.job
              where t.what = 0 and j.state = 0 and coalesce(j.parked, 0) <> 1
    union all select lane, 'waiting' from jobs where state = 0 and parked = 1
) s group by lane, state
