-- Inspect, as far as lists say more than a summary: many jobs by their ids, unsuccessful and parked jobs in short, the last entries of journals.
-- Reads only. Ids are a JSON array of their hexadecimal digits; a row has the position of its id in it.

-- name: summaries
-- Reads the jobs ?2. ?1 is the span by which a job's priority moves its rank. Walks the primary key.
select {{common.summary(?1)}}, i.key
from json_each(?2) i cross join windlass_jobs j on j.id = unhex(i.value)

-- fragment: failure(of)
-- The beginning of the last error of a job.
substr({{of}}.failure, 1, 3000)

-- name: details
-- Reads why the jobs ?2 are in their states, as far as their own rows say. ?1 is the span by which a job's priority moves its rank. Walks primary
-- keys. PostgreSQL finds their claims too.
select i.key, j.id, j.epoch, j.state,
       coalesce(j.hold, 0) = 2 or {{common.in_ready(?1)}} or {{common.in_serial_waiting}}, {{common.in_timers}}, j.parked is not null,
       j.wait, j.parked_at, j.wait_until, j.pending_children, {{failure(j)}}, p.at, p.author, p.note, c.deadline_at, c.author, c.note,
       j.settings, {{common.in_serial_waiting}}, j.suspect, j.unwind is not null and j.state = 0, j.started_at, j.parent,
       coalesce(j.item_count, 1), j.branch
from json_each(?2) i
cross join windlass_jobs j on j.id = unhex(i.value)
left join windlass_paused_jobs p on p.job = j.id
left join windlass_cancel_requests c on c.job = j.id

-- name: claims
-- Reads all claims with the names of their workers: they are few, and packed.
select c.worker, c.claimed_at, w.name, c.jobs from windlass_claims c left join windlass_workers w on w.id = c.worker

-- fragment: unsuccessful_job
-- The columns of an unsuccessful job in short; read by `unsuccessful_job`.
j.id, j.lane, j.key, j.unsuccessful_state, j.reason, {{failure(j)}}, j.attempts, j.finished_at, j.submitted_at, j.parent, j.branch

-- name: unsuccessful
-- Reads failed or cancelled jobs (?3), newest first. The caller stops when it has enough. Walks jobs_unsuccessful backwards.
select {{unsuccessful_job}} from windlass_jobs j where j.unsuccessful_state = ?3 and {{lists.page(j.id)}}

-- name: unsuccessful_of_class
-- Reads unsuccessful jobs whose error has a class (?3), newest first, likewise. Walks jobs_error_class backwards.
select {{unsuccessful_job}} from windlass_jobs j where j.error_class = ?3 and {{lists.page(j.id)}}

-- name: parked_stages
-- Lists the stages in which jobs are parked, but for jobs without one. Jumps from one to the next along jobs_parked.
with recursive stages (stage) as (
    select min(j.stage) from windlass_jobs j where j.parked is not null and j.stage is not null
    union all
    select (select min(j.stage) from windlass_jobs j where j.parked is not null and j.stage > s.stage)
    from stages s where s.stage is not null
)
select stage from stages where stage is not null

-- name: parked_ids
-- Reads the ids of jobs that are parked in a stage (null for none), oldest first. The caller stops when it has enough. Walks jobs_parked.
select j.id from windlass_jobs j where j.parked is not null and j.stage is ?1 order by j.id

-- name: parked
-- Reads parked jobs ?1 in short, in the order of the ids. Walks the primary key.
select j.id, j.lane, j.key, j.stage, j.wait, j.parked_at, j.wait_until, j.pending_children
from json_each(?1) i cross join windlass_jobs j on j.id = unhex(i.value)
where j.parked is not null

-- name: last_calls
-- Reads the last entries in the journals of the jobs ?1, with their payloads only if these are the progress of a repeat: an entry of kind ?2
-- with event ?3. Walks the primary key backwards.
select i.key, e.call_kind, e.name, e.at, case when e.call_kind = ?2 and e.event = ?3 then e.codec end,
       case when e.call_kind = ?2 and e.event = ?3 then e.payload end
from json_each(?1) i
cross join windlass_journal e on e.job = unhex(i.value)
                              and e.seq = (select max(l.seq) from windlass_journal l where l.job = unhex(i.value))
