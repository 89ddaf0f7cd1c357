-- The same as claim for several lanes $4: reads the first places of each, merges them by rank, then locks. It reads
-- more than it needs, so that several workers that claim at once do not all find the same places locked.
-- Takes up to $6 ready jobs of the lanes $4, by rank, and records them under one number. Walks the primary key of
-- ready once per lane, then of jobs; skips places that another claim is taking. Locks: worker (key share: it does not hold up
-- renewals, and whoever ends the worker waits for it), ready.
-- Answers at least one row: whether the worker lives, whether its lease holds, whether this number was recorded
-- before (then nothing is taken: see claim_repeat; nor while the queue $10 is paused), whether suspects wait in the lanes $5, and the jobs,
-- with the oldest signal of each name that they wait for.
-- Forgets settled claims; one that still has a claimed job stays (its outcome was lost), which is asked unless $11 says that the
-- server is the one that made them.
with clock as materialized (
    select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now
), me as materialized (
    select w.id, w.lease_until > clock.now as holds from workers w, clock where w.id = $2 and w.life = 0 for key share of w
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
    select t.rank, j.id, j.lane, j.epoch, j.rev, j.attempts, j.deaths, j.key, j.deadline_at, j.spent, j.settings,
           j.codec, j.input, j.due_at, j.stage, j.data_codec, j.data, j.wait, j.waits, j.until, j.pending, j.since, j.run,
           case when j.round is not null or j.branch is not null then j.parent end as parent, j.unwind, j.branch,
           coalesce(j.items, 1) - coalesce(j.tallied, 0) as items
    from taken t cross join lateral (select * from jobs where id = t.job offset 0) j
    order by t.rank, j.id
), recorded as (
    insert into claims (worker, number, alone, claimed_at, jobs, epochs)
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
       got.id, got.lane, got.epoch, got.rev, got.attempts, got.deaths, got.key, got.deadline_at, got.spent,
       got.settings, got.codec, got.input, got.rank,
       (select now from clock), (select count(*) from heads) > (select count(*) from locked),
       got.due_at, (select count(*)::int4 from lanes), null::text,
       got.stage, got.data_codec, got.data, got.wait, got.until, got.pending, got.parent, got.since, got.run, got.unwind,
       got.branch, got.items,
       case when got.waits is not null then array(
           select row(s.number, s.name, s.at, s.codec, s.payload) from unnest(got.waits) as w (name)
           cross join lateral (
               select * from signals where job = got.id and name = w.name and aside is null order by number limit 1
           ) s
           order by s.number) end
from (select 1) as always left join got on true
