-- Fragments that several files include.
--
-- Statements work on batches: parameters are arrays, one element per job. The lock order of all transactions is in the head of the
-- baseline migration. "Skips" means `skip locked`: rows that another transaction has locked are left to it.
--
-- In fragments, `j` is a row of jobs.

-- fragment: now
-- The time of the statement: $1, or the server's clock if that is null.
coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8)

-- fragment: clock
-- The same as a CTE, where a statement needs one time in several places.
clock as materialized (
    select {{now}} as now
)

-- fragment: in_ready(span)
-- Whether a job is in the ready set. Walks its primary key.
exists (select 1 from ready r
        where r.lane in (j.lane, -j.lane) and r.rank = j.due_at + j.priority * {{span}}::int8 and r.job = j.id)

-- fragment: in_serial_waiting
-- Whether a job waits for its serial key. Walks the primary key of serial_waiting (`offset 0` keeps it from reading all of it into a
-- hash table instead).
exists (select 1 from serial_waiting w
        where w.serial_key = j.serial_key and w.serial_position = j.serial_position and w.job = j.id offset 0)

-- fragment: in_timers
-- Whether a job waits for the time it is due. Walks the primary key of timers, as above.
exists (select 1 from timers t where t.due_at = j.due_at and t.job = j.id and t.purpose = 0 offset 0)

-- fragment: is_ready(span)
-- Whether a live job is ready: it is held, in the ready set, or waits for its serial key.
(coalesce(j.hold, 0) = 2 or {{in_ready({{span}})}} or {{in_serial_waiting}})

-- fragment: is_parked
-- Whether a live job is parked.
coalesce(j.parked, 0) = 1

-- fragment: summary(span)
-- The columns of a job in a list; read by `summary`. The last but one are where it is, which is the state of a live job.
j.id, j.lane, j.priority, j.state, j.reason, j.attempts, j.submitted_at, j.due_at, j.finished_at, j.key,
{{is_ready({{span}})}} as is_ready, {{in_timers}} as is_scheduled, {{is_parked}} as is_parked, j.stage

-- fragment: error_class(failure)
-- The class of an error, as it stands in its JSON, which begins with it. The pattern has the same meaning whatever backslashes mean by default.
substring({{failure}} from e'^[{]"class":"((?:[^"\\\\]|\\\\.)*)"')

-- fragment: ready_lane
-- The lane of a job in the ready set: suspects are in the negative one.
case when suspect then -lane else lane end

-- fragment: with_parents
-- The jobs $1, and the parents whose waits count them: for statements that lock both, by id.
(array(select unnest($1::uuid[]) union select c.parent from jobs c where c.id = any($1) and c.parent_rev is not null))

-- fragment: has_undo
-- Whether a job must be unwound before it ends.
coalesce(j.has_undo and j.unwind is null, false)

-- fragment: items_left
-- How many children a job represents that are not counted in its branch.
coalesce(j.item_count, 1) - coalesce(j.items_counted, 0)

-- fragment: branch_child
-- The columns of a job as a child of a branch, null if it is in none; read by `Child::read`.
case when j.branch is not null then j.parent end, j.branch, {{items_left}}, j.rev
