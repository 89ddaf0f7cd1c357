-- Locks the live ones of jobs whose timers fire, by id, and reads where they stand. A statement of its own, after due:
-- whoever was moving one of them has finished, and what it did is seen.
select id, lane, priority, due_at, suspect, hold, serial, deadline_at from jobs where id = any($1::uuid[]) and state = 0 order by id for update
