-- What ends per minute and branch, and how long waits for signals took: appended by every statement that ends jobs or waits, summed up by
-- Maintenance::roll_up, read by Inspect. Appending locks nothing and comes last. One roll-up runs at a time, under an advisory lock: it alone
-- writes sums, so that it reads, adds and writes them. SQLite appends at the end of a transaction.

-- fragment: bucket(micros)
-- The bucket of a histogram into which a number of microseconds falls: `Histogram::bucket`.
floor(ln(greatest({{micros}}, 0)::float8 + 0.6) * 5.770780163555854)::int4 + 3

-- fragment: times
-- The buckets of how long a job waited for the attempt that ended it, and how long that ran, in one number: `times_from_number`.
(({{bucket(finished_at - started_at)}}) * 256 + {{bucket(started_at - due_at)}} - 32768)::int2

-- fragment: append(ended)
-- Records what has ended: a query that returns a row per lane, minute and branch, in the order of the columns.
insert into ended_batches (lane, minute, parent, branch, done, failed, cancelled, retried, first_start_at, last_end_at, times)
{{ended}}

-- fragment: ended_by_attempts(done, failed, cancelled)
-- Counts the jobs that `wrote` says attempts have ended, at the time of `clock`.
select lane, (select now / 60000000 from clock)::int4 as minute, case when branch is not null then parent end as parent, branch,
       ({{done}})::int4 as done, ({{failed}})::int4 as failed, ({{cancelled}})::int4 as cancelled, 0 as retried,
       min(started_at) filter (where branch is not null) as first_start_at,
       case when branch is not null then (select now from clock) end as last_end_at, array_agg({{times}}) as times
from wrote group by lane, branch, case when branch is not null then parent end

-- fragment: one_done
-- Counts the only job that `wrote` says an attempt has ended, which is done.
select lane, (finished_at / 60000000)::int4, case when branch is not null then parent end, branch, 1, 0, 0, 0,
       case when branch is not null then started_at end, case when branch is not null then finished_at end, array[{{times}}]
from wrote

-- fragment: ended_outside(at, failed, cancelled, jobs)
-- Counts jobs that were ended from outside of an attempt, at one time: the CTE has their lanes and branches.
select lane, ({{at}} / 60000000)::int4, parent, branch, 0, ({{failed}})::int4, ({{cancelled}})::int4, 0, null::int8,
       case when branch is not null then {{at}} end, null::int2[]
from {{jobs}} group by lane, parent, branch

-- fragment: branch_of_job
-- The branch that a job is a child of, if it is one.
case when j.branch is not null then j.parent end as parent, j.branch

-- fragment: awaited
-- The names under which the length of a wait is recorded that has ended, of a parked job `w`: `WaitCondition::names_of_ended`. Walks the
-- primary key of signals.
select n.name from (
    (select s.name from signals s
     where not w.timed_out and s.job = w.id and s.name = any(w.wait_names) and s.unreadable is null
     group by s.name order by min(s.number) limit w.wait_needs)
    union all
    select a.name from unnest(w.wait_names) as a (name)
    where w.timed_out and not exists (select from signals s where s.job = w.id and s.name = a.name and s.unreadable is null)
) n
where not starts_with(n.name, 'windlass.')

-- fragment: append_waits(jobs)
-- Records how long jobs waited for signals: the CTE has their kinds, what they waited for, when they were parked, when their waits ended, and
-- whether the time was over.
insert into wait_batches (kind, day, signal, arrived, timed_out)
select w.kind, (max(w.ended_at) / 86400000000)::int4, n.name,
       coalesce(array_agg(({{bucket(w.ended_at - w.parked_at)}})::int2) filter (where not w.timed_out), '{}'),
       coalesce(array_agg(({{bucket(w.ended_at - w.parked_at)}})::int2) filter (where w.timed_out), '{}')
from {{jobs}} w cross join lateral ({{awaited}}) n
where w.parked_at is not null and w.wait_names is not null
group by w.kind, n.name

-- name: has_rows
-- Whether a roll-up would find anything: recorded rows, minutes that began before $1, hours that began before minute $2, days before $3.
-- Walks the primary key of ended_sums; reads all of signal_waits, which is short, if it finds nothing else.
select exists (select from ended_batches) or exists (select from wait_batches)
    or exists (select from ended_sums where minutes = 1 and starts < $1::int4)
    or exists (select from ended_sums where minutes = 60 and starts < $2::int4)
    or exists (select from signal_waits where day < $3::int4)

-- name: try_lock
-- Takes the lock of roll-ups until the end of the transaction, unless another one has it.
select pg_try_advisory_xact_lock(hashtextextended($1, 0))

-- name: take_ended
-- Deletes recorded ends, at most $1, and returns them. Reads the table from its beginning.
delete from ended_batches where ctid = any (array(select b.ctid from ended_batches b limit $1))
returning lane, minute, parent, branch, done, failed, cancelled, retried, first_start_at, last_end_at, times

-- name: take_minutes
-- Deletes sums of minutes that began before $1, at most $2, the oldest first, and returns them: they are added to their hours. Walks the
-- primary key.
delete from ended_sums where ctid = any (array(
    select s.ctid from ended_sums s where s.minutes = 1 and s.starts < $1::int4 order by s.starts, s.lane limit $2
))
returning minutes, starts, lane, done, failed, cancelled, retried, wait_times, run_times

-- name: read_sums
-- Reads some sums of ends. Walks the primary key.
select s.minutes, s.starts, s.lane, s.done, s.failed, s.cancelled, s.retried, s.wait_times, s.run_times
from unnest($1::int2[], $2::int4[], $3::int4[]) as k (minutes, starts, lane)
join ended_sums s on s.minutes = k.minutes and s.starts = k.starts and s.lane = k.lane

-- name: write_sums
-- Writes sums of ends. Walks the primary key.
insert into ended_sums as s (minutes, starts, lane, done, failed, cancelled, retried, wait_times, run_times)
select * from unnest($1::int2[], $2::int4[], $3::int4[], $4::int8[], $5::int8[], $6::int8[], $7::int8[], $8::bytea[], $9::bytea[])
on conflict (minutes, starts, lane) do update
set done = excluded.done, failed = excluded.failed, cancelled = excluded.cancelled, retried = excluded.retried,
    wait_times = excluded.wait_times, run_times = excluded.run_times

-- name: delete_sums
-- Deletes sums of hours that began before minute $1, at most $2. Walks the primary key.
delete from ended_sums where ctid = any (array(
    select s.ctid from ended_sums s where s.minutes = 60 and s.starts < $1::int4 limit $2
))

-- name: read_branch_times
-- Reads the times of some branches. Walks the primary key.
select t.job, t.branch, t.first_start_at, t.last_end_at, t.wait_times, t.run_times
from unnest($1::uuid[], $2::int8[]) as k (job, branch)
join branch_times t on t.job = k.job and t.branch = k.branch

-- name: write_branch_times
-- Writes the times of branches that exist. Walks the primary keys of branches and branch_times.
insert into branch_times as t (job, branch, first_start_at, last_end_at, wait_times, run_times)
select k.* from unnest($1::uuid[], $2::int8[], $3::int8[], $4::int8[], $5::bytea[], $6::bytea[])
     as k (job, branch, first_start_at, last_end_at, wait_times, run_times)
where exists (select from branches b where b.job = k.job and b.number = k.branch)
on conflict (job, branch) do update
set first_start_at = excluded.first_start_at, last_end_at = excluded.last_end_at, wait_times = excluded.wait_times,
    run_times = excluded.run_times

-- name: take_waits
-- Deletes recorded waits, at most $1, and returns them. Reads the table from its beginning.
delete from wait_batches where ctid = any (array(select b.ctid from wait_batches b limit $1))
returning kind, signal, day, arrived, timed_out

-- name: kept_signals
-- Lists the signals of some kinds that are kept apart. Walks the primary key.
select distinct kind, signal from signal_waits where kind = any($1::int4[])

-- name: read_waits
-- Reads some sums of waits. Walks the primary key.
select w.kind, w.signal, w.day, w.arrived, w.timed_out
from unnest($1::int4[], $2::text[], $3::int4[]) as k (kind, signal, day)
join signal_waits w on w.kind = k.kind and w.signal = k.signal and w.day = k.day

-- name: write_waits
-- Writes sums of waits. Walks the primary key.
insert into signal_waits as w (kind, signal, day, arrived, timed_out)
select * from unnest($1::int4[], $2::text[], $3::int4[], $4::bytea[], $5::bytea[])
on conflict (kind, signal, day) do update set arrived = excluded.arrived, timed_out = excluded.timed_out

-- name: delete_waits
-- Deletes sums of waits of days before $1, at most $2. Reads the whole table, which is short.
delete from signal_waits where ctid = any (array(select w.ctid from signal_waits w where w.day < $1::int4 limit $2))

-- name: throughput
-- Reads the sums of minutes and hours from $1 until before $2, and what is recorded and not summed up, as of one moment. Walks the primary
-- key of ended_sums; reads all of ended_batches, which is short.
select s.minutes, s.starts, s.lane, s.done, s.failed, s.cancelled, s.retried, s.wait_times, s.run_times, null::int2[]
from ended_sums s where s.minutes in (1, 60) and s.starts >= $1::int4 and s.starts < $2::int4
union all
select 1::int2, b.minute, b.lane, b.done, b.failed, b.cancelled, b.retried, null, null, b.times
from ended_batches b where b.minute >= $1 and b.minute < $2

-- name: branch_times
-- Reads the times of the branches of a job, and what is recorded and not summed up, as of one moment. Walks the primary keys of branches
-- and branch_times; reads all of ended_batches, which is short.
select t.branch, t.first_start_at, t.last_end_at, t.wait_times, t.run_times, null::int2[] from branch_times t where t.job = $1::uuid
union all
select b.branch, b.first_start_at, b.last_end_at, null, null, b.times
from ended_batches b join branches k on k.job = b.parent and k.number = b.branch
where b.parent = $1

-- name: signal_waits
-- Reads the sums of waits, of some kinds or all, then what is recorded and not summed up, as of one moment. Walks the primary key of
-- signal_waits if there are kinds; reads all of wait_batches, which is short.
select k.name, w.signal, w.day, w.sum_arrived, w.sum_timed_out, w.arrived, w.timed_out
from (
    select kind, signal, day, arrived as sum_arrived, timed_out as sum_timed_out, null::int2[] as arrived, null::int2[] as timed_out
    from signal_waits
    union all
    select kind, signal, day, null, null, arrived, timed_out from wait_batches
) w
join kinds k on k.id = w.kind
where $1::text[] is null or k.name = any($1)
order by w.sum_arrived is null, k.name, w.signal, w.day
