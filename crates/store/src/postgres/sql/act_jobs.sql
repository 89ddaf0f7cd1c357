-- Locks jobs, and the parents whose waits count them, by id, and reads all that acts on them need; the columns at the
-- end say which were asked for, which have something to undo before they end, and for which branches they count.
select id, lane, priority, state, due_at, suspect, serial, hold, epoch, settings, kind, coalesce(parked, 0) = 1, rev,
       round is not null, id = any($1), coalesce(undo and unwind is null, false),
       case when branch is not null then parent end, branch, coalesce(items, 1) - coalesce(tallied, 0), rev
from jobs
where id = any (array(select unnest($1::uuid[]) union select c.parent from jobs c where c.id = any($1) and c.round is not null))
order by id for update
