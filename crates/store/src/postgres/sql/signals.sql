-- name: mark_unreadable
-- Sets signals aside that attempts could not read, of jobs whose epoch and rev are their change's and whose claim is known.
-- Walks the primary keys of claims, jobs and signals; the jobs are locked by an earlier statement.
update signals s set unreadable = e.why
from unnest($1::uuid[], $2::int4[], $3::int4[], $4::int8[], $5::int8[], $6::int8[], $7::text[])
     as e (job, epoch, rev, worker, claim, number, why)
join claims k on k.worker = e.worker and k.number = e.claim
join jobs j on j.id = e.job and j.epoch = e.epoch and j.rev = e.rev and j.state = 0
where s.job = e.job and s.number = e.number and s.unreadable is null

-- name: notify_parents
-- Tells jobs that branches of theirs have come to what they watch for: the watches are over, and the inboxes of those that
-- are live get a signal for each, however full they are. Both are locked before. Walks the primary keys of branches and jobs.
-- Answers the branches; waits.wake comes next.
with met as (
    update branches b set watch = null, poll_at = case when b.cancels_children then b.poll_at end
    from unnest($2::uuid[], $3::int8[]) as k (job, number)
    where b.job = k.job and b.number = k.number and b.watch is not null
    returning b.job, b.number
), delivered as (
    insert into signals (job, name, at, codec, payload)
    select m.job, 'windlass.branch', coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8), 0,
           convert_to(m.number::text, 'UTF8')
    from met m join jobs j on j.id = m.job and j.state = 0 order by m.job, m.number
)
select job, number from met

-- name: drop
-- Takes a signal out of an inbox for good, because someone says so. The job is locked by an earlier statement. Walks the
-- primary key.
delete from signals where job = $1 and number = $2

-- name: read
-- A signal in an inbox: its name, and whether it was set aside. Walks the primary key.
select name, unreadable is not null from signals where job = $1 and number = $2

-- name: deliver
-- Puts signals into the inboxes of live jobs, but those that were delivered before and those that find $7 there, or as
-- many that were set aside. No
-- name and dedup id stands twice for one job. The jobs are locked by an earlier statement. Walks the primary keys of
-- jobs, heard and signals. Answers for each, in order: the state of its job (null if there is none), whether it was not
-- delivered before, whether it is now; and what the job waits for, of how many names, which of these are there.
with clock as materialized (
    select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now
), asked as materialized (
    select a.*, j.state, case when j.parked = 1 then j.wait_names end as wait_names, j.wait_needs,
           j.state = 0 and h.job is null as fresh
    from unnest($2::uuid[], $3::text[], $4::text[], $5::int2[], $6::bytea[])
         with ordinality as a (job, name, dedup, codec, payload, serial_position)
    left join jobs j on j.id = a.job
    left join delivered_signals h on h.job = a.job and h.name = a.name and h.dedup = a.dedup
), ranked as materialized (
    select a.*, case when fresh then row_number() over (partition by a.job, a.fresh order by a.serial_position) end as nth from asked a
), counted as materialized (
    select r.*,
           max(case when r.nth = 1 then
               (select greatest(count(*) filter (where s.unreadable is null),
                                case when count(s.unreadable) >= $7::int8 then $7::int8 else 0 end)
                from (select s.unreadable from signals s where s.job = r.job limit 2 * $7::int8) s)
           end) over (partition by r.job) as there
    from ranked r
), remembered as (
    insert into delivered_signals (job, name, dedup) select job, name, dedup from counted where there + nth <= $7
), delivered as (
    insert into signals (job, name, at, codec, payload)
    select c.job, c.name, clock.now, c.codec, c.payload from counted c, clock where c.there + c.nth <= $7 order by c.serial_position
)
select c.state, coalesce(c.fresh, false), coalesce(c.there + c.nth <= $7, false), c.wait_names, c.wait_needs,
       case when c.nth = 1 and c.wait_needs > 1 and c.wait_names is not null then
           array(select distinct s.name from signals s
                 where s.job = c.job and s.name = any(c.wait_names) and s.unreadable is null)
       end
from counted c order by c.serial_position

-- name: restore
-- Puts a signal back that was set aside, where it stood. The job is locked by an earlier statement; whether the signal ends
-- its wait is for waits.wake to say. Walks the primary key.
update signals set unreadable = null where job = $1 and number = $2
