-- Inspect, as far as lists say more than a summary: many jobs by their ids, unsuccessful and parked jobs in short, the last entries of journals.
-- Reads only, and locks nothing. A row has the position of its id among the ids, counted from one. `offset 0` keeps a statement from walking all
-- jobs instead of their primary key.

-- name: summaries
-- Reads the jobs $2. $1 is the span by which a job's priority moves its rank. Walks the primary key.
select s.*
from unnest($2::uuid[]) with ordinality as i (id, n)
cross join lateral (select {{common.summary($1)}}, i.n from jobs j where j.id = i.id offset 0) s

-- fragment: failure(of)
-- The beginning of the last error of a job.
left({{of}}.failure, 3000)

-- name: details
-- Reads why the jobs $2 are in their states, as far as their own rows say, and who runs them. $1 is the span by which a job's priority moves its rank. Walks
-- primary keys, and reads all claims, which are few. SQLite reads these by another statement.
with held as materialized (
    select p.id, p.epoch, c.worker, c.claimed_at, w.name
    from claims c
    cross join lateral unnest(c.jobs, c.epochs) as p (id, epoch)
    left join workers w on w.id = c.worker
    where p.id = any($2::uuid[])
)
select i.n, j.state, j.is_ready, j.is_scheduled, j.is_parked, h.worker, h.claimed_at, h.name, j.wait, j.parked_at, j.wait_until,
       j.pending_children, j.failure, p.at, p.author, p.note, c.deadline_at, c.author, c.note, j.settings, j.waits_for_slot, j.suspect,
       j.unwinding, j.started_at, j.parent, j.items, j.branch
from unnest($2) with ordinality as i (id, n)
cross join lateral (
    select j.id, j.epoch, j.state, {{common.is_ready($1)}} as is_ready, {{common.in_timers}} as is_scheduled, {{common.is_parked}} as is_parked,
           j.wait, j.parked_at, j.wait_until, j.pending_children, {{failure(j)}} as failure, j.settings,
           {{common.in_serial_waiting}} as waits_for_slot, j.suspect, j.unwind is not null and j.state = 0 as unwinding, j.started_at, j.parent,
           coalesce(j.item_count, 1) as items, j.branch
    from jobs j where j.id = i.id offset 0
) j
left join held h on h.id = j.id and h.epoch = j.epoch and j.state = 0
left join paused_jobs p on p.job = j.id
left join cancel_requests c on c.job = j.id

-- fragment: unsuccessful_job
-- The columns of an unsuccessful job in short; read by `unsuccessful_job`.
j.id, j.lane, j.key, j.unsuccessful_state, j.reason, {{failure(j)}}, j.attempts, j.finished_at, j.submitted_at, j.parent, j.branch

-- name: unsuccessful
-- Reads failed or cancelled jobs ($4), newest first, at most $3. Walks jobs_unsuccessful backwards.
select {{unsuccessful_job}} from jobs j where {{lists.page_of(j.unsuccessful_state, $4::int2)}}

-- name: unsuccessful_of_class
-- Reads unsuccessful jobs whose error has a class ($4), newest first, at most $3. Walks jobs_error_class backwards.
select {{unsuccessful_job}} from jobs j where {{lists.page_of(j.error_class, $4::text)}}

-- name: parked
-- Reads the oldest $1 parked jobs in short, by id. Walks the primary key of parked_jobs, from stage to stage, then that of jobs.
with recursive stages as (
    (select stage from parked_jobs order by stage limit 1)
    union all
    select n.stage from stages s
    cross join lateral (select p.stage from parked_jobs p where p.stage > s.stage order by p.stage limit 1) n
), oldest as materialized (
    select p.job from stages s
    cross join lateral (select p.job from parked_jobs p where p.stage = s.stage order by p.job limit $1::int8) p
    order by p.job
    limit $1
)
select j.*
from oldest o
cross join lateral (
    select j.id, j.lane, j.key, j.stage, j.wait, j.parked_at, j.wait_until, j.pending_children
    from jobs j where j.id = o.job and {{common.is_parked}} offset 0
) j
order by o.job

-- name: last_calls
-- Reads the last entries in the journals of the jobs $1, with their payloads only if these are the progress of a repeat: an entry of kind $2
-- with event $3. Walks the primary key backwards.
select i.n, e.call_kind, e.name, e.at, case when e.call_kind = $2::int2 and e.event = $3::int2 then e.codec end,
       case when e.call_kind = $2 and e.event = $3 then e.payload end
from unnest($1::uuid[]) with ordinality as i (id, n)
cross join lateral (
    select e.call_kind, e.event, e.name, e.at, e.codec, e.payload from journal e where e.job = i.id order by e.seq desc limit 1
) e
