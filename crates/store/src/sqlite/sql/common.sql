-- Fragments that several files include.
--
-- SQLite has one writer at a time: a write transaction begins with `begin immediate`, so no statement here takes row locks and there
-- is no lock order. Most verbs send one statement per job, because a call into SQLite costs no round trip; PostgreSQL sends one
-- statement per batch.
--
-- In fragments, `j` is a row of windlass_jobs.

-- fragment: placement(of)
-- The columns that decide where a job is and who waits for its end; read by `Placement::read`. `of` is the prefix of the columns,
-- or nothing: SQLite knows no table alias in `returning`.
{{of}}lane, {{of}}priority, {{of}}due_at, {{of}}suspect, {{of}}deadline_at, {{of}}hold, {{of}}serial_key, {{of}}serial_position,
{{of}}parked, case when {{of}}parent_rev is not null then {{of}}parent end, {{of}}parent_rev = -1,
{{of}}branch is not null or {{of}}has_branches is not null

-- fragment: in_ready(span)
-- Whether a job is in the ready set. Walks its primary key.
exists (select 1 from windlass_ready r
        where r.lane in (j.lane, -j.lane) and r.rank = j.due_at + j.priority * {{span}} and r.job = j.id)

-- fragment: in_serial_waiting
-- Whether a job waits for its serial key. Walks the primary key of serial_waiting.
exists (select 1 from windlass_serial_waiting w
        where w.serial_key = j.serial_key and w.serial_position = j.serial_position and w.job = j.id)

-- fragment: in_timers
-- Whether a job waits for the time it is due. Walks the primary key of timers.
exists (select 1 from windlass_timers t where t.due_at = j.due_at and t.job = j.id and t.purpose = 0)

-- fragment: summary(span)
-- The columns of a job in a list; read by `summary`. The last but one are where it is, which is the state of a live job.
j.id, j.lane, j.priority, j.state, j.reason, j.attempts, j.submitted_at, j.due_at, j.finished_at, j.key,
coalesce(j.hold, 0) = 2 or {{in_ready({{span}})}} or {{in_serial_waiting}} as is_ready,
{{in_timers}} as is_scheduled, j.parked is not null as is_parked, j.stage

-- fragment: error_class(failure)
-- The class of an error.
json_extract({{failure}}, '$.class')

-- fragment: input
-- The input of a job, from its row or from windlass_payloads.
case when j.external_payloads & 1 then (select p.bytes from windlass_payloads p where p.job = j.id and p.part = 1) else j.input end

-- fragment: output
-- The output of a job, likewise.
case when j.external_payloads & 2 then (select p.bytes from windlass_payloads p where p.job = j.id and p.part = 2) else j.output end

-- fragment: data
-- The data of a job's stage, likewise.
case when j.external_payloads & 4 then (select p.bytes from windlass_payloads p where p.job = j.id and p.part = 4) else j.data end

-- fragment: data_is_external(is_external)
-- `external_payloads` after new data was written: bit 4 says whether the data is in windlass_payloads.
case when {{is_external}} then coalesce(external_payloads, 0) | 4 else nullif(external_payloads & 3, 0) end

-- fragment: items_left
-- How many children a job represents that are not counted in its branch.
coalesce(item_count, 1) - coalesce(items_counted, 0)
