-- Execution::claim: moves jobs from ready into one row of claims. Four statements for one lane, for several, for lanes with rate limits, and for
-- one job, of the same fragments. Locks: the worker (key share: it does not hold up renewals, and declaring the worker dead waits for it), rate
-- limits (by id, by rate.lock before), ready (in rank order, skipping rows that another claim has locked). SQLite sends several
-- statements.
--
-- Parameters of all four: $1 time, $2 worker, $3 claim number, $4 lanes, $5 lanes of suspects, $6 how many jobs at most, $7 settled claims,
-- $8 whether to run solo, $9 the lowest rank to read per lane, $10 queue, $11 whether the settled claims were made on this server.
-- Nothing is taken if the worker has no lease, the claim was recorded before (see repeat), or the queue is paused.

-- fragment: may_claim
-- The CTEs that decide whether the claim may take jobs; and the deletion of settled claims. A settled claim that still has a claimed
-- job stays, because the outcome of that job was lost; that is checked unless $11.
{{common.clock}}, live_worker as materialized (
    select w.id, w.lease_until > clock.now as has_lease from workers w, clock where w.id = $2 and w.status = 0 for key share of w
), settled as (
    delete from claims where worker = $2 and number = any($7::int8[]) and exists (select from live_worker where has_lease)
      and ($11::bool or not {{has_claimed_job}})
), repeated as materialized (
    select 1 from claims where worker = $2 and number = $3
), open_queue as materialized (
    select 1 from queues q where q.id = $10::int4 and q.paused_at is null
)

-- fragment: has_claimed_job
-- Whether a job of a claim is still claimed under the epoch of the claim. Walks the primary key of jobs.
exists (select from unnest(claims.jobs, claims.epochs) as p (id, epoch)
        where (select j.state from jobs j where j.id = p.id and j.epoch = p.epoch) = 0)

-- fragment: is_allowed
-- Whether it may take jobs.
exists (select from live_worker where has_lease) and not exists (select from repeated) and exists (select from open_queue)

-- fragment: first_ready
-- The first ready rows of a lane. More than are needed, so that several claims at once do not all find the same rows locked.
select r.ctid, r.rank, r.job from ready r
where r.lane = l.lane and r.rank >= l.floor order by r.rank, r.job limit $6::int8 * 4

-- fragment: take
-- Takes the locked rows out of the ready set, reads their jobs, and records the claim.
taken as (
    delete from ready where ctid = any (array(select ctid from locked)) returning rank, job
), claimed as materialized (
    -- `offset 0`: each job is looked up by its id, whatever the planner knows of the table.
    select t.rank, j.id, j.lane, j.epoch, j.rev, j.attempts, j.worker_deaths, j.key, j.deadline_at, j.retry_counts, j.settings,
           j.codec, j.input, j.due_at, j.stage, j.data_codec, j.data, j.wait, j.wait_names, j.wait_until, j.pending_children,
           j.stage_rev, j.steps_since_wait, {{parent}} as parent, j.unwind, j.branch, {{common.items_left}} as item_count
    from taken t cross join lateral (select * from jobs where id = t.job offset 0) j
    order by t.rank, j.id
), recorded as (
    insert into claims (worker, number, solo, claimed_at, jobs, epochs)
    select $2, $3, $8, clock.now, array_agg(c.id), array_agg(c.epoch) from claimed c, clock group by clock.now
)

-- fragment: parent
-- The parent that the end of a job is counted for.
case when j.parent_rev is not null or j.branch is not null then j.parent end

-- fragment: result(skipped_rows, unaffordable)
-- At least one row: whether the worker lives, whether its lease holds, whether the claim was recorded before, whether suspects wait;
-- and a job, with the oldest signal of each name that it waits for. Read by `claimed_job`.
select exists (select from live_worker), exists (select from live_worker where has_lease), exists (select from repeated),
       exists (select from open_queue)
       and exists (select 1 from unnest($5::int4[]) as l (lane)
               cross join lateral (
                   select 1 from ready r
                   where r.lane = l.lane and r.ctid <> all (array(select ctid from locked))
                   order by r.rank, r.job limit 1
               ) s),
       c.id, c.lane, c.epoch, c.rev, c.attempts, c.worker_deaths, c.key, c.deadline_at, c.retry_counts,
       c.settings, c.codec, c.input, c.rank,
       (select now from clock), {{skipped_rows}}, c.due_at, (select count(*)::int4 from lanes), {{unaffordable}},
       c.stage, c.data_codec, c.data, c.wait, c.wait_until, c.pending_children, c.parent, c.stage_rev, c.steps_since_wait, c.unwind,
       c.branch, c.item_count,
       case when c.wait_names is not null then array(
           select row(s.number, s.name, s.at, s.codec, s.payload) from unnest(c.wait_names) as w (name)
           cross join lateral (
               select * from signals where job = c.id and name = w.name and unreadable is null order by number limit 1
           ) s
           order by s.number) end
from (select 1) as always left join claimed c on true

-- name: one_lane
-- Claims jobs of the one lane in $4, by rank. Walks the primary key of ready from the rank in $9 on, then of jobs and signals.
with {{may_claim}}, locked as materialized (
    select r.ctid, r.rank, r.job from ready r
    where r.lane = ($4::int4[])[1] and r.rank >= ($9::int8[])[1] and {{is_allowed}}
    order by r.rank, r.job
    limit $6::int8
    for update skip locked
), {{take}}
{{result(false, null::text)}}

-- name: one_job
-- Claims the job $12 of a lane in $4, if it is ready, whatever ranks before it; $13 is the span by which priority moves the rank. Walks the
-- primary keys of jobs, ready and signals.
with {{may_claim}}, locked as materialized (
    select r.ctid, r.rank, r.job from jobs j join ready r on r.lane = j.lane and r.rank = j.due_at + j.priority * $13::int8 and r.job = j.id
    where j.id = $12::uuid and j.lane = any($4::int4[]) and r.rank >= ($9::int8[])[1] and {{is_allowed}}
    limit $6::int8
    for update of r skip locked
), {{take}}
{{result(false, null::text)}}

-- name: several_lanes
-- Claims jobs of several lanes: reads the first ready rows of each, merges them by rank, then locks them. Walks the primary key of ready
-- once per lane, then of jobs and signals.
with {{may_claim}}, first_ready as materialized (
    select f.ctid, f.rank, f.job
    from unnest($4::int4[], $9::int8[]) as l (lane, floor)
    cross join lateral ({{first_ready}}) f
    where {{is_allowed}}
    order by f.rank, f.job
    limit $6::int8 * 4
), locked as materialized (
    select r.ctid, r.rank, r.job from ready r
    where r.ctid = any (array(select ctid from first_ready))
    order by r.rank, r.job
    limit $6::int8
    for update skip locked
), {{take}}
{{result((select count(*) from first_ready) > (select count(*) from locked), null::text)}}

-- name: rate_limited_lanes
-- Claims jobs of lanes of which some have a rate limit ($12, 0 for none), which rate.lock has locked: reads the first ready rows of each
-- lane, leaves out those that their bucket cannot pay for, merges the others by rank, locks them and charges the buckets. Each row also
-- has, per bucket, the first job that it could not pay for.
with {{may_claim}}, buckets as materialized (
    select b.id, b.rate, b.per, b.burst,
           case when b.level_at > clock.now + b.burst * b.per / b.rate + 1 then clock.now else greatest(b.level_at, clock.now) end as level_at,
           least(b.burst * b.per,
                 b.level + least(greatest(clock.now - b.level_at, 0), b.burst * b.per / b.rate + 1) * b.rate) as level
    from rate_limits b, clock where b.id = any($12::int4[]) and not b.lifted
), first_ready as materialized (
    select f.ctid, f.rank, f.job, b.id as rate_limit, least(j.rate_weight, b.burst) * b.per as cost, j.rate_weight, b.level
    from unnest($4::int4[], $12::int4[], $9::int8[]) as l (lane, rate_limit, floor)
    cross join lateral ({{first_ready}}) f
    left join buckets b on b.id = l.rate_limit
    left join jobs j on j.id = f.job and b.id is not null
    where {{is_allowed}}
), priced as materialized (
    select f.*, f.rate_limit is null or sum(f.cost) over (partition by f.rate_limit order by f.rank, f.job) <= f.level as is_affordable
    from first_ready f
), affordable as materialized (
    select ctid, rank, job, rate_limit, cost from priced where is_affordable order by rank, job limit $6::int8 * 4
), locked as materialized (
    select r.ctid, r.rank, r.job from ready r
    where r.ctid = any (array(select ctid from affordable))
    order by r.rank, r.job
    limit $6::int8
    for update skip locked
), charges as materialized (
    select a.rate_limit, sum(a.cost)::int8 as cost from affordable a
    where a.rate_limit is not null and a.ctid = any (array(select ctid from locked))
    group by a.rate_limit
), charged as (
    update rate_limits r set level = b.level - charges.cost, level_at = b.level_at
    from buckets b, charges where r.id = b.id and charges.rate_limit = b.id
), {{take}}, unaffordable as materialized (
    select distinct on (p.rate_limit) p.rate_limit, p.rank, p.job, p.rate_weight from priced p where not p.is_affordable
    order by p.rate_limit, p.rank, p.job
)
{{result((select count(*) from affordable) > (select count(*) from locked),
    (select json_agg(json_build_array(u.rank, u.job, u.rate_weight, b.rate, b.per, b.burst,
                                      b.level - coalesce(charges.cost, 0), b.level_at))::text
     from unaffordable u join buckets b on b.id = u.rate_limit left join charges on charges.rate_limit = u.rate_limit))}}

-- name: repeat
-- Reads what an earlier send of the same claim took, as far as it is still claimed. Walks the primary keys of claims and jobs.
select true, true, true, false,
       j.id, j.lane, j.epoch, j.rev, j.attempts, j.worker_deaths, j.key, j.deadline_at, j.retry_counts, j.settings, j.codec, j.input,
       0::int8, 0::int8, false, j.due_at, 0, null::text,
       j.stage, j.data_codec, j.data, j.wait, j.wait_until, j.pending_children,
       {{parent}}, j.stage_rev, j.steps_since_wait, j.unwind, j.branch, {{common.items_left}}, null::record[]
from claims c
cross join lateral unnest(c.jobs, c.epochs) with ordinality as p (id, epoch, position)
cross join lateral (select * from jobs where id = p.id and epoch = p.epoch and state = 0 offset 0) j
where c.worker = $1 and c.number = $2
order by p.position

-- name: with_jobs
-- Lists which claims of a worker still have a job. Walks the primary keys of claims and jobs, of each claim until it finds one. SQLite
-- reads each claim by itself.
select c.number from claims c
where c.worker = $1 and c.number = any($2::int8[]) and exists (
    select from unnest(c.jobs, c.epochs) as p (id, epoch)
    cross join lateral (select from jobs where id = p.id and epoch = p.epoch and state = 0 offset 0) j
)

-- name: inbox
-- Reads the signals that claimed jobs wait for, oldest first, without unreadable ones: of each name the oldest, or all of them ($2 says
-- so for each job in $1 and name in $3). For jobs whose signals the claim did not read. Walks the primary key of signals.
select s.job, s.number, s.name, s.at, s.codec, s.payload
from unnest($1::uuid[], $3::text[], $2::bool[]) as w (job, name, every)
cross join lateral (
    select s.job, s.number, s.name, s.at, s.codec, s.payload from signals s
    where s.job = w.job and s.name = w.name and s.unreadable is null order by s.number limit case when w.every then null else 1 end
) s
order by s.job, s.number
