-- Jobs of dead workers that are still claimed under their epoch, locked by id, with the parents whose waits count them;
-- and which have something to undo before they end.
select j.id, j.epoch, j.deaths, j.crashes, coalesce(j.undo and j.unwind is null, false)
from jobs j
where j.id = any (array(select unnest($1::uuid[]) union select c.parent from jobs c where c.id = any($1) and c.round is not null))
  and j.state = 0
order by j.id
for update
