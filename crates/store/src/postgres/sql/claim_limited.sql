-- The same as claim_lanes for lanes of which some have a bucket ($11, 0 for none), which claim_buckets has locked: reads
-- the first places of each lane, passes over those that their bucket cannot pay for, merges the others by rank, locks
-- them and charges the buckets. Answers in each row also the first job that each dry bucket could not pay for.
-- Forgets settled claims; one that still has a claimed job stays (its outcome was lost), which is asked unless $12 says that the
-- server is the one that made them.
with clock as materialized (
    select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now
), me as materialized (
    select w.id, w.lease_until > clock.now as holds from workers w, clock where w.id = $2 and w.life = 0 for key share of w
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
           case when b.at > clock.now + b.burst * b.per / b.rate + 1 then clock.now else greatest(b.at, clock.now) end as at,
           least(b.burst * b.per,
                 b.level + least(greatest(clock.now - b.at, 0), b.burst * b.per / b.rate + 1) * b.rate) as level
    from buckets b, clock where b.id = any($11::int4[]) and not b.lifted
), heads as materialized (
    select h.ctid, h.rank, h.job, p.id as bucket, least(j.weight, p.burst) * p.per as cost, j.weight, p.level
    from unnest($4::int4[], $11::int4[], $9::int8[]) as l (lane, bucket, floor)
    cross join lateral (
        select r.ctid, r.rank, r.job from ready r
        where r.lane = l.lane and r.rank >= l.floor order by r.rank, r.job limit $6::int8 * 4
    ) h
    left join pots p on p.id = l.bucket
    left join jobs j on j.id = h.job and p.id is not null
    where exists (select from me where holds) and not exists (select from before) and exists (select from open)
), paid as materialized (
    select h.*, h.bucket is null or sum(h.cost) over (partition by h.bucket order by h.rank, h.job) <= h.level as fits
    from heads h
), fit as materialized (
    select ctid, rank, job, bucket, cost from paid where fits order by rank, job limit $6::int8 * 4
), locked as materialized (
    select r.ctid, r.rank, r.job from ready r
    where r.ctid = any (array(select ctid from fit))
    order by r.rank, r.job
    limit $6::int8
    for update skip locked
), bill as materialized (
    select f.bucket, sum(f.cost)::int8 as cost from fit f
    where f.bucket is not null and f.ctid = any (array(select ctid from locked))
    group by f.bucket
), charged as (
    update buckets b set level = p.level - bill.cost, at = p.at from pots p, bill where b.id = p.id and bill.bucket = p.id
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
), dry as materialized (
    select distinct on (h.bucket) h.bucket, h.rank, h.job, h.weight from paid h where not h.fits order by h.bucket, h.rank, h.job
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
       (select now from clock), (select count(*) from fit) > (select count(*) from locked), got.due_at,
       (select count(*)::int4 from lanes),
       (select json_agg(json_build_array(d.rank, d.job, d.weight, p.rate, p.per, p.burst,
                                         p.level - coalesce(bill.cost, 0), p.at))::text
        from dry d join pots p on p.id = d.bucket left join bill on bill.bucket = d.bucket),
       got.stage, got.data_codec, got.data, got.wait, got.until, got.pending, got.parent, got.since, got.run, got.unwind,
       got.branch, got.items,
       case when got.waits is not null then array(
           select row(s.number, s.name, s.at, s.codec, s.payload) from unnest(got.waits) as w (name)
           cross join lateral (
               select * from signals where job = got.id and name = w.name and aside is null order by number limit 1
           ) s
           order by s.number) end
from (select 1) as always left join got on true
