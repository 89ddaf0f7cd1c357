-- name: job_ends
-- How jobs ended, if they did.
select id, state, reason, failure, output_codec, output from jobs where id = any($1::uuid[])

-- name: unreadable_signals
-- The signals of a job that were set aside, oldest first, a bounded number. Walks the primary key.
select number, name, at, unreadable from signals where job = $1 and unreadable is not null order by number limit $2

-- name: backlog
-- What waits and runs in each lane, looking at $1 rows at most of each of ready (per lane), timers and claims. Walks the
-- primary keys of ready and timers, all claims until it has enough, then the primary key of jobs.
select l.id, 'ready',
       (select count(*) from (select from ready r where r.lane = l.id limit $1::int8) s)
       + (select count(*) from (select from ready r where r.lane = -l.id limit $1::int8) s),
       least((select j.due_at from ready r join jobs j on j.id = r.job where r.lane = l.id
              order by r.rank, r.job limit 1),
             (select j.due_at from ready r join jobs j on j.id = r.job where r.lane = -l.id
              order by r.rank, r.job limit 1))
from lanes l
union all
select j.lane, 'scheduled', count(*), null
from (select t.job, t.purpose from timers t order by t.due_at, t.job, t.purpose limit $1::int8) s
join jobs j on j.id = s.job
where s.purpose = 0 and j.state = 0 and coalesce(j.parked, 0) <> 1
group by j.lane
union all
select j.lane, 'running', count(*), null
from (select p.id, p.epoch from claims c cross join lateral unnest(c.jobs, c.epochs) as p (id, epoch) limit $1::int8) s
join jobs j on j.id = s.id and j.epoch = s.epoch and j.state = 0
group by j.lane

-- name: bytes
-- Bytes of all tables of the schema, with their indexes.
select coalesce(sum(pg_total_relation_size(c.oid)), 0)::int8
from pg_class c where c.relnamespace = current_schema()::regnamespace and c.relkind = 'r'

-- name: state_counts
-- Counts per lane and state, each capped. Live jobs are counted by where they are.
select lane, state, least(count(*), $1) from (
    select lane, case state when 0 then 'live' when 1 then 'done' when 2 then 'failed' else 'cancelled' end as state
    from jobs
    union all select abs(lane), 'ready' from ready
    union all select j.lane, 'ready' from serial_waiting w join jobs j on j.id = w.job
    union all select lane, 'ready' from jobs where state = 0 and hold = 2
    union all select j.lane, 'scheduled' from timers t join jobs j on j.id = t.job
              where t.purpose = 0 and j.state = 0 and coalesce(j.parked, 0) <> 1
    union all select lane, 'waiting' from jobs where state = 0 and parked = 1
) s group by lane, state

-- name: context
-- The values in a workflow's context. Walks the primary key.
select name, codec, value from context where job = $1

-- name: history
-- A job's failed attempts.
select epoch, worker, started_at, ended_at, failure from attempts where job = $1 order by epoch

-- name: inbox
-- The signals in a job's inbox, oldest first. Walks the primary key.
select number, name, at, codec, payload, unreadable from signals where job = $1 order by number limit $2

-- name: job
-- One job with all that is known of it. The place it is in says the state of a live one; a running one's holder is
-- found in the claims, which are few.
select j.id, j.lane, j.priority, j.state, j.reason, j.attempts, j.submitted_at, j.due_at, j.finished_at, j.key,
       (coalesce(j.hold, 0) = 2 or exists (select 1 from ready r
               where r.lane in (j.lane, -j.lane) and r.rank = j.due_at + j.priority * $2::int8 and r.job = j.id)
        or exists (select 1 from serial_waiting l where l.serial_key = j.serial_key and l.serial_position = j.serial_position and l.job = j.id)),
       exists (select 1 from timers t where t.due_at = j.due_at and t.job = j.id and t.purpose = 0),
       coalesce(j.parked, 0) = 1, j.stage, j.epoch, j.rev, j.worker_deaths, j.solo_crashes, coalesce(h.worker, j.worker),
       coalesce(h.claimed_at, j.started_at), j.deadline_at, j.tags, j.options, j.settings, j.retry_counts, j.codec, j.input,
       j.output_codec, j.output, j.failure, j.parent, j.data_codec, j.data, j.wait, j.wait_until, j.pending_children, j.unwind,
       j.branch, j.spawn, j.item, coalesce(j.item_count, 1), b.name, b.spawns
from jobs j
left join lateral (
    select c.worker, c.claimed_at from claims c, unnest(c.jobs, c.epochs) as p (id, epoch)
    where p.id = j.id and p.epoch = j.epoch and j.state = 0 limit 1
) h on true
left join branches b on b.job = j.parent and b.number = j.branch
where j.id = $1

-- name: jobs
-- Jobs that match, newest first. Walks the primary key backwards; a live state is told by where the job is.
select * from (
    select j.id, j.lane, j.priority, j.state, j.reason, j.attempts, j.submitted_at, j.due_at, j.finished_at, j.key,
       (coalesce(j.hold, 0) = 2 or exists (select 1 from ready r
               where r.lane in (j.lane, -j.lane) and r.rank = j.due_at + j.priority * $1::int8 and r.job = j.id)
        or exists (select 1 from serial_waiting l where l.serial_key = j.serial_key and l.serial_position = j.serial_position and l.job = j.id)) as is_ready,
       exists (select 1 from timers t where t.due_at = j.due_at and t.job = j.id and t.purpose = 0) as is_scheduled,
       coalesce(j.parked, 0) = 1 as is_parked, j.stage
    from jobs j
    where j.id < coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
      and ($3::int2 is null or j.state = $3)
      and ($6::text is null or j.lane in (select l.id from lanes l join kinds k on k.id = l.kind where k.name = $6))
      and ($7::text is null or j.lane in (select l.id from lanes l join queues q on q.id = l.queue where q.name = $7))
      and ($8::text is null or exists (select 1 from tags t where t.tag = $8 and t.job = j.id))
      and ($9::text is null or j.key = $9)
      and ($11::text is null or j.stage = $11)
      and ($12::int4 is null or j.lane in (select l.id from lanes l where l.version = $12))
    order by j.id desc
) s
where ($4::bool is null or is_ready = $4) and ($5::bool is null or is_scheduled = $5)
  and ($13::bool is null or is_parked = $13)
limit $10

-- name: journal
-- A workflow's journal, by place, as one row of columns. Walks the primary key.
select array_agg(seq), array_agg(op), array_agg(mark), array_agg(name), array_agg(key), array_agg(source_line), array_agg(at),
       array_agg(codec), array_agg(payload)
from (
    select seq, op, mark, name, key, source_line, at, codec, payload from journal
    where job = $1 and seq > $2 order by seq limit $3
) e

-- name: journals
-- The journals of some workflows, each as one row of columns, by place. Walks the primary key.
select a.*, i.id
from unnest($1::uuid[]) as i (id)
cross join lateral (
    select array_agg(seq), array_agg(op), array_agg(mark), array_agg(name), array_agg(key), array_agg(source_line),
           array_agg(at), array_agg(codec), array_agg(payload)
    from (
        select seq, op, mark, name, key, source_line, at, codec, payload from journal where job = i.id order by seq
    ) e
) a

-- name: transition_counts
-- How often each transition was made by the newest $2 machines of a kind. Walks the primary key of jobs backwards until it
-- has them, then that of steps.
select l.version, s.stage, s.next, s.outcome, count(*)
from (
    select j.id, j.lane from jobs j where j.kind = (select k.id from kinds k where k.name = $1) order by j.id desc limit $2
) m
join lanes l on l.id = m.lane
join transitions s on s.job = m.id
group by l.version, s.stage, s.next, s.outcome

-- name: transitions
-- A machine's transitions, oldest first. Walks the primary key.
select rev, stage, next, outcome, at, worker from transitions where job = $1 and rev > coalesce($2::int4, -1) order by rev limit $3

-- name: unsuccessful_jobs
-- Failed or cancelled jobs that match, newest first. Walks jobs_unsuccessful backwards.
select * from (
    select j.id, j.lane, j.priority, j.state, j.reason, j.attempts, j.submitted_at, j.due_at, j.finished_at, j.key,
       (coalesce(j.hold, 0) = 2 or exists (select 1 from ready r
               where r.lane in (j.lane, -j.lane) and r.rank = j.due_at + j.priority * $1::int8 and r.job = j.id)
        or exists (select 1 from serial_waiting l where l.serial_key = j.serial_key and l.serial_position = j.serial_position and l.job = j.id)) as is_ready,
       exists (select 1 from timers t where t.due_at = j.due_at and t.job = j.id and t.purpose = 0) as is_scheduled,
       coalesce(j.parked, 0) = 1 as is_parked, j.stage
    from jobs j
    where j.id < coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
      and j.unsuccessful_state = $3::int2
      and ($6::text is null or j.lane in (select l.id from lanes l join kinds k on k.id = l.kind where k.name = $6))
      and ($7::text is null or j.lane in (select l.id from lanes l join queues q on q.id = l.queue where q.name = $7))
      and ($8::text is null or exists (select 1 from tags t where t.tag = $8 and t.job = j.id))
      and ($9::text is null or j.key = $9)
      and ($11::text is null or j.stage = $11)
      and ($12::int4 is null or j.lane in (select l.id from lanes l where l.version = $12))
    order by j.id desc
) s
where ($4::bool is null or is_ready = $4) and ($5::bool is null or is_scheduled = $5)
  and ($13::bool is null or is_parked = $13)
limit $10
