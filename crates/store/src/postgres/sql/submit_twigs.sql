-- Puts children of branches in, a chunk of them, unless their ids are there: those due now into the ready set, the others
-- among the timers. With $21 they are added to what was spawned in their branches, once for each branch. Without $27 they go
-- into no place: what becomes of them is written next. Touches neither their parents nor, for each of them, the branch. Rows
-- are sorted by id.
with clock as materialized (
    select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now
), put as (
    insert into jobs (id, submitted_at, due_at, deadline_at, lane, kind, priority, codec, digest, input, tags, options,
                      settings, stage, parent, branch, spawn, item, items)
    select n.id, clock.now, least(greatest(coalesce(n.at, clock.now), clock.now) + n.delay, $26::int8), n.deadline_at,
           n.lane, n.kind, n.priority, n.codec, n.digest, n.input, n.tags, n.options, n.settings, n.stage, n.parent,
           n.branch, n.spawn, n.item, n.items
    from clock, unnest($2::uuid[], $3::int4[], $4::int4[], $5::int2[], $6::int8[], $7::int8[], $8::int8[], $9::bytea[],
                       $10::int2[], $11::bytea[], $12::text[], $13::text[], $14::text[], $15::text[], $16::uuid[],
                       $17::int8[], $18::int2[], $19::text[], $20::int4[])
         as n (id, lane, kind, priority, at, delay, deadline_at, digest, codec, input, tags, options, settings, stage,
               parent, branch, spawn, item, items)
    on conflict do nothing
    returning id, lane, priority, submitted_at, due_at, deadline_at, parent, branch, items
), to_ready as (
    insert into ready (lane, rank, job)
    select lane, due_at + priority * $24::int8, id from put where due_at <= submitted_at and $27::bool
), to_timers as (
    insert into timers (due_at, job, what)
    select due_at, id, 0 from put where due_at > submitted_at
    union all select deadline_at, id, 1 from put where deadline_at is not null
), to_tags as (
    insert into tags (tag, job)
    select t.tag, t.job from unnest($22::text[], $23::uuid[]) as t (tag, job) where t.job in (select id from put)
    on conflict do nothing
), to_branches as (
    update branches b set spawned = b.spawned + k.n
    from (select parent, branch, sum(coalesce(items, 1)) as n from put group by parent, branch) k
    where $21::bool and b.job = k.parent and b.number = k.branch
)
insert into gates (queue, writer, version)
select l.queue, $25::int8, (random() * 1e12)::int8
from lanes l where l.id in (select lane from put where due_at <= submitted_at and $27)
group by l.queue
union all
select 0, $25, (random() * 1e12)::int8
where exists (select from put where due_at > submitted_at or deadline_at is not null)
on conflict (queue, writer) do update set version = gates.version + 1
