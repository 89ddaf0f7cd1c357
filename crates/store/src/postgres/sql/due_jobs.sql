-- Locks the live ones of jobs whose timers fire, and of the parents whose waits count them, by id, and reads where they
-- stand, which have something to undo before they end, of which that is being undone, which have branches, and for
-- which branches they count. A statement of its own, after
-- due: whoever was moving one of them has finished, and what it did is seen.
select id, lane, priority, due_at, suspect, hold, serial, deadline_at, parked, case when round is not null then parent end,
       coalesce(undo and unwind is null, false), coalesce(not undo, false), coalesce(branched, false),
       case when branch is not null then parent end, branch, coalesce(items, 1) - coalesce(tallied, 0), rev
from jobs
where id = any (array(select unnest($1::uuid[]) union select c.parent from jobs c where c.id = any($1) and c.round is not null))
  and state = 0
order by id for update
