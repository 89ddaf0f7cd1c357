-- Execution::signal and commit, and Control::act_on_jobs as far as it drops or restores signals. Writes signals (inboxes) and delivered_signals.
-- The jobs are locked by an earlier statement (commit.lock_jobs, control.lock_jobs), so that each statement sees what earlier holders of the
-- locks did; waits.wake comes next.

-- name: deliver
-- Adds signals to the inboxes of live jobs, but not those that were delivered before, nor those that find $7 signals in the inbox or as many
-- unreadable ones. No name and dedup id occurs twice for one job. Walks the primary keys of jobs, delivered_signals and signals. Returns for
-- each, in order: the state of its job (null if there is none), whether it was not delivered before, whether it is now; the names that
-- the job waits for, how many it needs, and which of them have arrived.
with {{common.clock}}, requested as materialized (
    select r.*, j.state, case when j.parked = 1 then j.wait_names end as wait_names, j.wait_needs,
           j.state = 0 and d.job is null as is_new
    from unnest($2::uuid[], $3::text[], $4::text[], $5::int2[], $6::bytea[])
         with ordinality as r (job, name, dedup, codec, payload, position)
    left join jobs j on j.id = r.job
    left join delivered_signals d on d.job = r.job and d.name = r.name and d.dedup = r.dedup
), numbered as materialized (
    select r.*, case when is_new then row_number() over (partition by r.job, r.is_new order by r.position) end as nth from requested r
), counted as materialized (
    select n.*,
           max(case when n.nth = 1 then
               (select greatest(count(*) filter (where s.unreadable is null),
                                case when count(s.unreadable) >= $7::int8 then $7::int8 else 0 end)
                from (select s.unreadable from signals s where s.job = n.job limit 2 * $7::int8) s)
           end) over (partition by n.job) as in_inbox
    from numbered n
), recorded as (
    insert into delivered_signals (job, name, dedup) select job, name, dedup from counted where in_inbox + nth <= $7
), delivered as (
    insert into signals (job, name, at, codec, payload)
    select c.job, c.name, clock.now, c.codec, c.payload from counted c, clock where c.in_inbox + c.nth <= $7 order by c.position
)
select c.state, coalesce(c.is_new, false), coalesce(c.in_inbox + c.nth <= $7, false), c.wait_names, c.wait_needs,
       case when c.nth = 1 and c.wait_needs > 1 and c.wait_names is not null then
           array(select distinct s.name from signals s
                 where s.job = c.job and s.name = any(c.wait_names) and s.unreadable is null)
       end
from counted c order by c.position

-- name: notify_parents
-- Ends the watches of branches that are met, and sends each job that is live a signal per branch, however full its inbox is. Jobs and
-- branches are locked. Returns the branches. Walks the primary keys of branches and jobs.
with met as (
    update branches b set watch = null, poll_at = case when b.cancels_children then b.poll_at end
    from unnest($2::uuid[], $3::int8[]) as k (job, number)
    where b.job = k.job and b.number = k.number and b.watch is not null
    returning b.job, b.number
), delivered as (
    insert into signals (job, name, at, codec, payload)
    select m.job, 'windlass.branch', {{common.now}}, 0, convert_to(m.number::text, 'UTF8')
    from met m join jobs j on j.id = m.job and j.state = 0 order by m.job, m.number
)
select job, number from met

-- name: mark_unreadable
-- Marks signals that attempts could not decode, where the change will be written: $1 to $5 are those of journal.sql. Walks the primary keys
-- of claims, jobs and signals.
update signals s set unreadable = c.why
from unnest($1::uuid[], $2::int4[], $3::int4[], $4::int8[], $5::int8[], $6::int8[], $7::text[])
     as c (job, epoch, rev, worker, claim, number, why)
{{journal.to_be_written}}
where s.job = c.job and s.number = c.number and s.unreadable is null

-- name: read
-- Reads the name of a signal, and whether it is unreadable. Walks the primary key.
select name, unreadable is not null from signals where job = $1 and number = $2

-- name: drop
-- Deletes a signal because someone asked for it. Walks the primary key.
delete from signals where job = $1 and number = $2

-- name: restore
-- Makes an unreadable signal readable again; it keeps its number, and so its position. Walks the primary key.
update signals set unreadable = null where job = $1 and number = $2
