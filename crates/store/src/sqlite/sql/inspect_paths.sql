-- How often each transition was made by the newest machines of a kind. Walks the primary key of jobs backwards, then
-- that of steps.
select l.version, s.stage, s.next, s.how, count(*)
from (select j.id, j.lane from windlass_jobs j where j.kind = (select k.id from windlass_kinds k where k.name = ?1)
      order by j.id desc limit ?2) newest
join windlass_lanes l on l.id = newest.lane
join windlass_steps s on s.job = newest.id
group by l.version, s.stage, s.next, s.how
order by l.version, s.stage, s.next, s.how
