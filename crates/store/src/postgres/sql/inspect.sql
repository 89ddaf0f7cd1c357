-- Inspect, as far as jobs go, and Execution::job_ends: reads only, and locks nothing. lists.sql lists jobs, views.sql reads what
-- limits them, children.sql children and branches.

-- name: job
-- Reads one job with all that is known of it. Where it is says the state of a live job; who runs it is found in the claims, which are few.
-- Walks primary keys. $2 is the span by which a job's priority moves its rank.
select {{common.summary($2)}}, j.epoch, j.rev, j.worker_deaths, j.solo_crashes, coalesce(h.worker, j.worker),
       coalesce(h.claimed_at, j.started_at), j.deadline_at, j.tags, j.options, j.settings, j.retry_counts, j.codec, j.input,
       j.output_codec, j.output, j.failure, j.parent, j.data_codec, j.data, j.wait, j.wait_until, j.pending_children, j.unwind,
       j.branch, j.spawn, j.item, coalesce(j.item_count, 1), b.name, b.spawns, (select w.progress from workers w where w.id = h.worker)
from jobs j
left join lateral (
    select c.worker, c.claimed_at from claims c, unnest(c.jobs, c.epochs) as p (id, epoch)
    where p.id = j.id and p.epoch = j.epoch and j.state = 0 limit 1
) h on true
left join branches b on b.job = j.parent and b.number = j.branch
where j.id = $1

-- name: job_ends
-- Reads how jobs ended, if they did. Walks the primary key.
select id, state, reason, failure, output_codec, output from jobs where id = any($1::uuid[])

-- name: output_sizes
-- Reads the bytes of the outputs of jobs. Walks the primary key.
select id, coalesce(octet_length(output), 0)::int8 from jobs where id = any($1::uuid[])

-- name: history
-- Lists the failed attempts of a job. Walks the primary key.
select epoch, worker, started_at, ended_at, failure from attempts where job = $1 order by epoch

-- name: inbox
-- Lists the signals in an inbox, oldest first. Walks the primary key.
select number, name, at, codec, payload, unreadable from signals where job = $1 order by number limit $2

-- name: unreadable_signals
-- Lists the unreadable signals of a job, oldest first, at most $2. Walks the primary key.
select number, name, at, unreadable from signals where job = $1 and unreadable is not null order by number limit $2

-- name: transitions
-- Lists the transitions of a machine after a revision, oldest first. Walks the primary key.
select rev, stage, next, outcome, at, worker from transitions where job = $1 and rev > coalesce($2::int4, -1) order by rev limit $3

-- name: transition_counts
-- Counts how often each transition was made by the newest $2 machines of a kind. Walks the primary key of jobs backwards until it has
-- them, then that of transitions.
select l.version, s.stage, s.next, s.outcome, count(*)
from (
    select j.id, j.lane from jobs j where j.kind = (select k.id from kinds k where k.name = $1) order by j.id desc limit $2
) newest
join lanes l on l.id = newest.lane
join transitions s on s.job = newest.id
group by l.version, s.stage, s.next, s.outcome

-- fragment: entries
-- Entries of a journal as one row of arrays: many small rows would take twice as long to read.
select array_agg(seq), array_agg(call_kind), array_agg(event), array_agg(name), array_agg(key), array_agg(source_line), array_agg(at),
       array_agg(codec), array_agg(payload)

-- name: journal
-- Reads the entries of a journal after a position, in order, as one row. Walks the primary key.
{{entries}}
from (
    select seq, call_kind, event, name, key, source_line, at, codec, payload from journal
    where job = $1 and seq > $2 order by seq limit $3
) e

-- name: journals
-- Reads the journals of some workflows, each as one row. Walks the primary key.
select a.*, i.id
from unnest($1::uuid[]) as i (id)
cross join lateral (
    {{entries}}
    from (
        select seq, call_kind, event, name, key, source_line, at, codec, payload from journal where job = i.id order by seq
    ) e
) a

-- name: journal_sizes
-- Reads the bytes of the payloads of entries after a position, in order. Walks the primary key.
select octet_length(payload)::int8 from journal where job = $1 and seq > $2 order by seq limit $3

-- name: journal_end
-- Reads the last entries of a journal, the last one first, with the bytes of their payloads, but only the payloads of entries of kind $3. Walks
-- the primary key backwards.
select seq, call_kind, event, name, key, source_line, at, codec, case when call_kind = $3::int2 then payload else ''::bytea end,
       octet_length(payload)::int8
from journal where job = $1 order by seq desc limit $2

-- name: journal_before
-- Counts the entries before a position, at most $3. Walks the primary key.
select count(*) from (select from journal where job = $1 and seq < $2 limit $3) e

-- name: context
-- Reads the values of a workflow's context. Walks the primary key.
select name, codec, value from context where job = $1

-- name: backlog
-- Counts what is ready, scheduled and running in each lane, reading at most $1 rows of ready per lane, of timers and of claims. Walks the
-- primary keys of ready and timers, claims until it has enough, then the primary key of jobs (`offset 0` keeps it from walking all jobs
-- instead).
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
cross join lateral (select lane, parked from jobs where id = s.job and state = 0 offset 0) j
where s.purpose = 0 and coalesce(j.parked, 0) <> 1
group by j.lane
union all
select j.lane, 'running', count(*), null
from (select p.id, p.epoch from claims c cross join lateral unnest(c.jobs, c.epochs) as p (id, epoch) limit $1::int8) s
cross join lateral (select lane from jobs where id = s.id and epoch = s.epoch and state = 0 offset 0) j
group by j.lane

-- name: bytes
-- Reads the size of all tables of the schema in bytes, with their indexes.
select coalesce(sum(pg_total_relation_size(c.oid)), 0)::int8
from pg_class c where c.relnamespace = current_schema()::regnamespace and c.relkind = 'r'
