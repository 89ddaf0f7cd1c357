-- How often each transition was made by the newest $2 machines of a kind. Walks the primary key of jobs backwards until it
-- has them, then that of steps.
select l.version, s.stage, s.next, s.how, count(*)
from (
    select j.id, j.lane from jobs j where j.kind = (select k.id from kinds k where k.name = $1) order by j.id desc limit $2
) m
join lanes l on l.id = m.lane
join steps s on s.job = m.id
group by l.version, s.stage, s.next, s.how
