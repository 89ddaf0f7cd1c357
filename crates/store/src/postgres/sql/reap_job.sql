-- Jobs of dead workers that are still claimed under their epoch, locked by id, with the parents whose waits count them;
-- which have something to undo before they end, which have branches, and for which branches they count.
select j.id, j.epoch, j.deaths, j.crashes, coalesce(j.undo and j.unwind is null, false),
       coalesce(j.branched, false), case when j.branch is not null then j.parent end, j.branch,
       coalesce(j.items, 1) - coalesce(j.tallied, 0), j.rev
from jobs j
where j.id = any (array(select unnest($1::uuid[]) union select c.parent from jobs c where c.id = any($1) and c.round is not null))
  and j.state = 0
order by j.id
for update
