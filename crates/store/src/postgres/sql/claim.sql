-- name: one_lane
-- Takes up to $6 ready jobs of the one lane in $4, by rank, and records them under one number. Walks the primary key
-- of ready from the rank in $9 on, then of jobs; skips places that another claim is taking. Locks: worker (key share: it does not hold up
-- renewals, and whoever ends the worker waits for it), ready.
-- Answers at least one row: whether the worker lives, whether its lease holds, whether this number was recorded
-- before (then nothing is taken: see claim.repeat; nor while the queue $10 is paused), whether suspects wait in the lanes $5, and the jobs,
-- with the oldest signal of each name that they wait for.
-- Forgets settled claims; one that still has a claimed job stays (its outcome was lost), which is asked unless $11 says that the
-- server is the one that made them.
with clock as materialized (
    select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now
), me as materialized (
    select w.id, w.lease_until > clock.now as holds from workers w, clock where w.id = $2 and w.status = 0 for key share of w
), settled as (
    delete from claims where worker = $2 and number = any($7::int8[]) and exists (select from me where holds)
      and ($11::bool or not exists (
          select from unnest(claims.jobs, claims.epochs) as p (id, epoch)
          where (select j.state from jobs j where j.id = p.id and j.epoch = p.epoch) = 0))
), before as materialized (
    select 1 from claims where worker = $2 and number = $3
), open as materialized (
    select 1 from queues q where q.id = $10::int4 and q.paused_at is null
), locked as materialized (
    select r.ctid, r.rank, r.job from ready r
    where r.lane = ($4::int4[])[1] and r.rank >= ($9::int8[])[1] and exists (select from me where holds) and not exists (select from before) and exists (select from open)
    order by r.rank, r.job
    limit $6::int8
    for update skip locked
), taken as (
    delete from ready where ctid = any (array(select ctid from locked)) returning rank, job
), got as materialized (
    -- `offset 0`: each job is looked up by its id, whatever the planner knows of the table.
    select t.rank, j.id, j.lane, j.epoch, j.rev, j.attempts, j.worker_deaths, j.key, j.deadline_at, j.retry_counts, j.settings,
           j.codec, j.input, j.due_at, j.stage, j.data_codec, j.data, j.wait, j.wait_names, j.wait_until, j.pending_children, j.stage_rev, j.steps_since_wait,
           case when j.parent_rev is not null or j.branch is not null then j.parent end as parent, j.unwind, j.branch,
           coalesce(j.item_count, 1) - coalesce(j.items_counted, 0) as item_count
    from taken t cross join lateral (select * from jobs where id = t.job offset 0) j
    order by t.rank, j.id
), recorded as (
    insert into claims (worker, number, solo, claimed_at, jobs, epochs)
    select $2, $3, $8, clock.now, array_agg(got.id), array_agg(got.epoch) from got, clock group by clock.now
)
select exists (select from me), exists (select from me where holds), exists (select from before),
       exists (select from open)
       and exists (select 1 from unnest($5::int4[]) as l (lane)
               cross join lateral (
                   select 1 from ready r
                   where r.lane = l.lane and r.ctid <> all (array(select ctid from locked))
                   order by r.rank, r.job limit 1
               ) s),
       got.id, got.lane, got.epoch, got.rev, got.attempts, got.worker_deaths, got.key, got.deadline_at, got.retry_counts,
       got.settings, got.codec, got.input, got.rank,
       (select now from clock), false, got.due_at, (select count(*)::int4 from lanes), null::text,
       got.stage, got.data_codec, got.data, got.wait, got.wait_until, got.pending_children, got.parent, got.stage_rev, got.steps_since_wait, got.unwind,
       got.branch, got.item_count,
       case when got.wait_names is not null then array(
           select row(s.number, s.name, s.at, s.codec, s.payload) from unnest(got.wait_names) as w (name)
           cross join lateral (
               select * from signals where job = got.id and name = w.name and unreadable is null order by number limit 1
           ) s
           order by s.number) end
from (select 1) as always left join got on true

-- name: inbox
-- The signals that claimed jobs wait for, oldest first: of each name the oldest, or all of it ($2 says so for each job and
-- name in $1 and $3), but for those that were set aside. For jobs of which a claim did not read them along. Walks the primary key
-- of signals.
select s.job, s.number, s.name, s.at, s.codec, s.payload
from unnest($1::uuid[], $3::text[], $2::bool[]) as w (job, name, every)
cross join lateral (
    select s.job, s.number, s.name, s.at, s.codec, s.payload from signals s
    where s.job = w.job and s.name = w.name and s.unreadable is null order by s.number limit case when w.every then null else 1 end
) s
order by s.job, s.number

-- name: several_lanes
-- The same as claim for several lanes $4: reads the first places of each, merges them by rank, then locks. It reads
-- more than it needs, so that several workers that claim at once do not all find the same places locked.
-- Takes up to $6 ready jobs of the lanes $4, by rank, and records them under one number. Walks the primary key of
-- ready once per lane, then of jobs; skips places that another claim is taking. Locks: worker (key share: it does not hold up
-- renewals, and whoever ends the worker waits for it), ready.
-- Answers at least one row: whether the worker lives, whether its lease holds, whether this number was recorded
-- before (then nothing is taken: see claim.repeat; nor while the queue $10 is paused), whether suspects wait in the lanes $5, and the jobs,
-- with the oldest signal of each name that they wait for.
-- Forgets settled claims; one that still has a claimed job stays (its outcome was lost), which is asked unless $11 says that the
-- server is the one that made them.
with clock as materialized (
    select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now
), me as materialized (
    select w.id, w.lease_until > clock.now as holds from workers w, clock where w.id = $2 and w.status = 0 for key share of w
), settled as (
    delete from claims where worker = $2 and number = any($7::int8[]) and exists (select from me where holds)
      and ($11::bool or not exists (
          select from unnest(claims.jobs, claims.epochs) as p (id, epoch)
          where (select j.state from jobs j where j.id = p.id and j.epoch = p.epoch) = 0))
), before as materialized (
    select 1 from claims where worker = $2 and number = $3
), open as materialized (
    select 1 from queues q where q.id = $10::int4 and q.paused_at is null
), heads as materialized (
    select h.ctid, h.rank, h.job
    from unnest($4::int4[], $9::int8[]) as l (lane, floor)
    cross join lateral (
        select r.ctid, r.rank, r.job from ready r
        where r.lane = l.lane and r.rank >= l.floor order by r.rank, r.job limit $6::int8 * 4
    ) h
    where exists (select from me where holds) and not exists (select from before) and exists (select from open)
    order by h.rank, h.job
    limit $6::int8 * 4
), locked as materialized (
    select r.ctid, r.rank, r.job from ready r
    where r.ctid = any (array(select ctid from heads))
    order by r.rank, r.job
    limit $6::int8
    for update skip locked
), taken as (
    delete from ready where ctid = any (array(select ctid from locked)) returning rank, job
), got as materialized (
    -- `offset 0`: each job is looked up by its id, whatever the planner knows of the table.
    select t.rank, j.id, j.lane, j.epoch, j.rev, j.attempts, j.worker_deaths, j.key, j.deadline_at, j.retry_counts, j.settings,
           j.codec, j.input, j.due_at, j.stage, j.data_codec, j.data, j.wait, j.wait_names, j.wait_until, j.pending_children, j.stage_rev, j.steps_since_wait,
           case when j.parent_rev is not null or j.branch is not null then j.parent end as parent, j.unwind, j.branch,
           coalesce(j.item_count, 1) - coalesce(j.items_counted, 0) as item_count
    from taken t cross join lateral (select * from jobs where id = t.job offset 0) j
    order by t.rank, j.id
), recorded as (
    insert into claims (worker, number, solo, claimed_at, jobs, epochs)
    select $2, $3, $8, clock.now, array_agg(got.id), array_agg(got.epoch) from got, clock group by clock.now
)
select exists (select from me), exists (select from me where holds), exists (select from before),
       exists (select from open)
       and exists (select 1 from unnest($5::int4[]) as l (lane)
               cross join lateral (
                   select 1 from ready r
                   where r.lane = l.lane and r.ctid <> all (array(select ctid from locked))
                   order by r.rank, r.job limit 1
               ) s),
       got.id, got.lane, got.epoch, got.rev, got.attempts, got.worker_deaths, got.key, got.deadline_at, got.retry_counts,
       got.settings, got.codec, got.input, got.rank,
       (select now from clock), (select count(*) from heads) > (select count(*) from locked),
       got.due_at, (select count(*)::int4 from lanes), null::text,
       got.stage, got.data_codec, got.data, got.wait, got.wait_until, got.pending_children, got.parent, got.stage_rev, got.steps_since_wait, got.unwind,
       got.branch, got.item_count,
       case when got.wait_names is not null then array(
           select row(s.number, s.name, s.at, s.codec, s.payload) from unnest(got.wait_names) as w (name)
           cross join lateral (
               select * from signals where job = got.id and name = w.name and unreadable is null order by number limit 1
           ) s
           order by s.number) end
from (select 1) as always left join got on true

-- name: rate_limited_lanes
-- The same as claim.several_lanes for lanes of which some have a bucket ($11, 0 for none), which rate.lock has locked: reads
-- the first places of each lane, passes over those that their bucket cannot pay for, merges the others by rank, locks
-- them and charges the buckets. Answers in each row also the first job that each dry bucket could not pay for.
-- Forgets settled claims; one that still has a claimed job stays (its outcome was lost), which is asked unless $12 says that the
-- server is the one that made them.
with clock as materialized (
    select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now
), me as materialized (
    select w.id, w.lease_until > clock.now as holds from workers w, clock where w.id = $2 and w.status = 0 for key share of w
), settled as (
    delete from claims where worker = $2 and number = any($7::int8[]) and exists (select from me where holds)
      and ($12::bool or not exists (
          select from unnest(claims.jobs, claims.epochs) as p (id, epoch)
          where (select j.state from jobs j where j.id = p.id and j.epoch = p.epoch) = 0))
), before as materialized (
    select 1 from claims where worker = $2 and number = $3
), open as materialized (
    select 1 from queues q where q.id = $10::int4 and q.paused_at is null
), pots as materialized (
    select b.id, b.rate, b.per, b.burst,
           case when b.level_at > clock.now + b.burst * b.per / b.rate + 1 then clock.now else greatest(b.level_at, clock.now) end as level_at,
           least(b.burst * b.per,
                 b.level + least(greatest(clock.now - b.level_at, 0), b.burst * b.per / b.rate + 1) * b.rate) as level
    from rate_limits b, clock where b.id = any($11::int4[]) and not b.lifted
), heads as materialized (
    select h.ctid, h.rank, h.job, p.id as rate_limit, least(j.rate_weight, p.burst) * p.per as cost, j.rate_weight, p.level
    from unnest($4::int4[], $11::int4[], $9::int8[]) as l (lane, rate_limit, floor)
    cross join lateral (
        select r.ctid, r.rank, r.job from ready r
        where r.lane = l.lane and r.rank >= l.floor order by r.rank, r.job limit $6::int8 * 4
    ) h
    left join pots p on p.id = l.rate_limit
    left join jobs j on j.id = h.job and p.id is not null
    where exists (select from me where holds) and not exists (select from before) and exists (select from open)
), paid as materialized (
    select h.*, h.rate_limit is null or sum(h.cost) over (partition by h.rate_limit order by h.rank, h.job) <= h.level as fits
    from heads h
), fit as materialized (
    select ctid, rank, job, rate_limit, cost from paid where fits order by rank, job limit $6::int8 * 4
), locked as materialized (
    select r.ctid, r.rank, r.job from ready r
    where r.ctid = any (array(select ctid from fit))
    order by r.rank, r.job
    limit $6::int8
    for update skip locked
), bill as materialized (
    select f.rate_limit, sum(f.cost)::int8 as cost from fit f
    where f.rate_limit is not null and f.ctid = any (array(select ctid from locked))
    group by f.rate_limit
), charged as (
    update rate_limits b set level = p.level - bill.cost, level_at = p.level_at from pots p, bill where b.id = p.id and bill.rate_limit = p.id
), taken as (
    delete from ready where ctid = any (array(select ctid from locked)) returning rank, job
), got as materialized (
    -- `offset 0`: each job is looked up by its id, whatever the planner knows of the table.
    select t.rank, j.id, j.lane, j.epoch, j.rev, j.attempts, j.worker_deaths, j.key, j.deadline_at, j.retry_counts, j.settings,
           j.codec, j.input, j.due_at, j.stage, j.data_codec, j.data, j.wait, j.wait_names, j.wait_until, j.pending_children, j.stage_rev, j.steps_since_wait,
           case when j.parent_rev is not null or j.branch is not null then j.parent end as parent, j.unwind, j.branch,
           coalesce(j.item_count, 1) - coalesce(j.items_counted, 0) as item_count
    from taken t cross join lateral (select * from jobs where id = t.job offset 0) j
    order by t.rank, j.id
), recorded as (
    insert into claims (worker, number, solo, claimed_at, jobs, epochs)
    select $2, $3, $8, clock.now, array_agg(got.id), array_agg(got.epoch) from got, clock group by clock.now
), dry as materialized (
    select distinct on (h.rate_limit) h.rate_limit, h.rank, h.job, h.rate_weight from paid h where not h.fits order by h.rate_limit, h.rank, h.job
)
select exists (select from me), exists (select from me where holds), exists (select from before),
       exists (select from open)
       and exists (select 1 from unnest($5::int4[]) as l (lane)
               cross join lateral (
                   select 1 from ready r
                   where r.lane = l.lane and r.ctid <> all (array(select ctid from locked))
                   order by r.rank, r.job limit 1
               ) s),
       got.id, got.lane, got.epoch, got.rev, got.attempts, got.worker_deaths, got.key, got.deadline_at, got.retry_counts,
       got.settings, got.codec, got.input, got.rank,
       (select now from clock), (select count(*) from fit) > (select count(*) from locked), got.due_at,
       (select count(*)::int4 from lanes),
       (select json_agg(json_build_array(d.rank, d.job, d.rate_weight, p.rate, p.per, p.burst,
                                         p.level - coalesce(bill.cost, 0), p.level_at))::text
        from dry d join pots p on p.id = d.rate_limit left join bill on bill.rate_limit = d.rate_limit),
       got.stage, got.data_codec, got.data, got.wait, got.wait_until, got.pending_children, got.parent, got.stage_rev, got.steps_since_wait, got.unwind,
       got.branch, got.item_count,
       case when got.wait_names is not null then array(
           select row(s.number, s.name, s.at, s.codec, s.payload) from unnest(got.wait_names) as w (name)
           cross join lateral (
               select * from signals where job = got.id and name = w.name and unreadable is null order by number limit 1
           ) s
           order by s.number) end
from (select 1) as always left join got on true

-- name: repeat
-- What an earlier send of the same claim took, as far as it is still claimed. Walks the primary key of jobs.
select true, true, true, false,
       j.id, j.lane, j.epoch, j.rev, j.attempts, j.worker_deaths, j.key, j.deadline_at, j.retry_counts, j.settings, j.codec, j.input,
       0::int8, 0::int8, false, j.due_at, 0, null::text,
       j.stage, j.data_codec, j.data, j.wait, j.wait_until, j.pending_children,
       case when j.parent_rev is not null or j.branch is not null then j.parent end, j.stage_rev, j.steps_since_wait, j.unwind, j.branch,
       coalesce(j.item_count, 1) - coalesce(j.items_counted, 0), null::record[]
from claims c
cross join lateral unnest(c.jobs, c.epochs) with ordinality as p (id, epoch, serial_position)
join jobs j on j.id = p.id and j.epoch = p.epoch and j.state = 0
where c.worker = $1 and c.number = $2
order by p.serial_position
