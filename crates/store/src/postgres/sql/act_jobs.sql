-- Locks jobs by id and reads all that acts on them need.
select id, lane, priority, state, due_at, suspect, serial, place, hold, epoch, submitted_at, deadline_at, settings, kind
from jobs where id = any($1::uuid[]) order by id for update
