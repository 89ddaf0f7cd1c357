-- What waits and runs in each lane, looking at $1 rows at most of each of ready (per lane), timers and claims. Walks the
-- primary keys of ready and timers, all claims until it has enough, then the primary key of jobs.
select l.id, 'ready',
       (select count(*) from (select from ready r where r.lane = l.id limit $1::int8) s)
       + (select count(*) from (select from ready r where r.lane = -l.id limit $1::int8) s),
       least((select j.due_at from ready r join jobs j on j.id = r.job where r.lane = l.id
              order by r.rank, r.job limit 1),
             (select j.due_at from ready r join jobs j on j.id = r.job where r.lane = -l.id
              order by r.rank, r.job limit 1))
from lanes l
union all
select j.lane, 'scheduled', count(*), null
from (select t.job, t.what from timers t order by t.due_at, t.job, t.what limit $1::int8) s
join jobs j on j.id = s.job
where s.what = 0 and j.state = 0 and coalesce(j.parked, 0) <> 1
group by j.lane
union all
select j.lane, 'running', count(*), null
from (select p.id, p.epoch from claims c cross join lateral unnest(c.jobs, c.epochs) as p (id, epoch) limit $1::int8) s
join jobs j on j.id = s.id and j.epoch = s.epoch and j.state = 0
group by j.lane
