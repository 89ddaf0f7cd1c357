-- What waits in each lane, looking at ?1 rows at most of each of ready (per lane) and timers. Walks their primary keys,
-- then that of jobs. In PostgreSQL the same statement counts what runs; here the claims are taken apart outside of SQL.
select l.id, 'ready',
       (select count(*) from (select 1 from windlass_ready r where r.lane = l.id limit ?1))
       + (select count(*) from (select 1 from windlass_ready r where r.lane = -l.id limit ?1)),
       (select min(due_at) from (
            select * from (select j.due_at from windlass_ready r join windlass_jobs j on j.id = r.job where r.lane = l.id
                           order by r.rank, r.job limit 1)
            union all
            select * from (select j.due_at from windlass_ready r join windlass_jobs j on j.id = r.job where r.lane = -l.id
                           order by r.rank, r.job limit 1)))
from windlass_lanes l
union all
select j.lane, 'scheduled', count(*), null
from (select t.job, t.what from windlass_timers t order by t.due_at, t.job, t.what limit ?1) s
join windlass_jobs j on j.id = s.job
where s.what = 0 and j.state = 0 and j.parked is null
group by j.lane
