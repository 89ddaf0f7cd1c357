-- name: insert
-- Puts a batch of jobs in, unless their ids or keys are there; those due now into the ready set or, if the worker
-- named serves and their queue is not paused, into its claim; the others among the timers. Answers the ids it wrote, and whether they were born
-- claimed. Rows are sorted by kind, key and id, so that two batches with
-- the same jobs cannot wait for each other.
with clock as materialized (
    select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now
), me as materialized (
    select w.id from workers w, clock where w.id = $2 and w.status = 0 and w.lease_until > clock.now for key share of w
), shut as materialized (
    select l.id from queues q join lanes l on l.queue = q.id where q.paused_at is not null and exists (select from me)
), put as (
    insert into jobs (id, submitted_at, due_at, deadline_at, lane, kind, priority, codec, digest, input, key, tags,
                      options, settings, stage)
    select n.id, clock.now, least(greatest(coalesce(n.at, clock.now), clock.now) + n.delay, $22), n.deadline_at,
           n.lane, n.kind, n.priority, n.codec, n.digest, n.input, n.key, n.tags, n.options, n.settings,
           n.stage
    from clock, unnest($4::uuid[], $5::int4[], $6::int4[], $7::int2[], $8::int8[], $9::int8[], $10::int8[],
                       $11::bytea[], $12::int2[], $13::bytea[], $14::text[], $15::text[], $16::text[], $17::text[],
                       $23::text[])
         as n (id, lane, kind, priority, at, delay, deadline_at, digest, codec, input, key, tags, options, settings,
               stage)
    on conflict do nothing
    returning id, lane, priority, submitted_at, due_at, deadline_at
), placed as materialized (
    select put.*, due_at <= submitted_at as due,
           due_at <= submitted_at and exists (select from me) and lane <> all (array(select id from shut)) as born
    from put
), to_ready as (
    insert into ready (lane, rank, job)
    select lane, due_at + priority * $18::int8, id from placed where due and not born
), to_timers as (
    insert into timers (due_at, job, purpose)
    select due_at, id, 0 from put where due_at > submitted_at
    union all select deadline_at, id, 1 from put where deadline_at is not null
), to_claim as (
    insert into claims (worker, number, solo, claimed_at, jobs, epochs)
    select me.id, $3, false, clock.now, array_agg(placed.id), array_agg(0)
    from me, clock, placed where placed.born
    group by me.id, clock.now
    on conflict (worker, number) do update
    set jobs = claims.jobs || excluded.jobs, epochs = claims.epochs || excluded.epochs
), to_tags as (
    insert into tags (tag, job)
    select t.tag, t.job from unnest($19::text[], $20::uuid[]) as t (tag, job) where t.job in (select id from put)
    on conflict do nothing
), to_gates as (
    insert into gates (queue, writer, version)
    select l.queue, $21::int8, (random() * 1e12)::int8
    from lanes l where l.id in (select lane from placed where due and not born)
    group by l.queue
    union all
    select 0, $21, (random() * 1e12)::int8
    where exists (select from put where due_at > submitted_at or deadline_at is not null)
    on conflict (queue, writer) do update set version = gates.version + 1
)
select id, born from placed

-- name: existing
-- What stood in the way of jobs that submit did not write, by id and by kind and key; and which of them an earlier
-- send of the same submit had claimed. A statement of its own: the one before could not see what it waited for.
select j.id, j.digest, null::int4, null::text,
       exists (select 1 from claims c where c.worker = $1 and c.number = $2 and j.id = any(c.jobs))
from jobs j where j.id = any($3::uuid[])
union all
select j.id, j.digest, j.kind, j.key, false
from unnest($4::int4[], $5::text[]) as k (kind, key) join jobs j on j.kind = k.kind and j.key = k.key

-- name: insert_special
-- Puts a batch of jobs in that need more than a row and a place, unless their ids or keys are there: they enter by
-- further statements. Sets their timers. Answers the ids it wrote, which are due, and which have timers. Rows are sorted as by submit.
with clock as materialized (
    select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now
), put as (
    insert into jobs (id, submitted_at, due_at, deadline_at, lane, kind, priority, codec, digest, input, key, tags,
                      options, settings, parent, serial_key, serial_position, rate_weight, keeps_slot, stage, parent_rev, branch, spawn, item, item_count)
    select n.id, clock.now, least(greatest(coalesce(n.at, clock.now), clock.now) + n.delay, $18), n.deadline_at,
           n.lane, n.kind, n.priority, n.codec, n.digest, n.input, n.key, n.tags, n.options, n.settings,
           n.parent, n.serial_key, least(greatest(coalesce(n.at, clock.now), clock.now) + n.delay, $18), n.rate_weight, n.keeps_slot,
           n.stage, n.parent_rev, n.branch, n.spawn, n.item, n.item_count
    from clock, unnest($2::uuid[], $3::int4[], $4::int4[], $5::int2[], $6::int8[], $7::int8[], $8::int8[],
                       $9::bytea[], $10::int2[], $11::bytea[], $12::text[], $13::text[], $14::text[], $15::text[],
                       $19::uuid[], $20::int8[], $21::int4[], $22::bool[], $23::text[], $24::int4[],
                       $25::int8[], $26::int2[], $27::text[], $28::int4[])
         as n (id, lane, kind, priority, at, delay, deadline_at, digest, codec, input, key, tags, options, settings,
               parent, serial_key, rate_weight, keeps_slot, stage, parent_rev, branch, spawn, item, item_count)
    on conflict do nothing
    returning id, submitted_at, due_at, deadline_at
), to_timers as (
    insert into timers (due_at, job, purpose)
    select due_at, id, 0 from put where due_at > submitted_at
    union all select deadline_at, id, 1 from put where deadline_at is not null
), to_tags as (
    insert into tags (tag, job)
    select t.tag, t.job from unnest($16::text[], $17::uuid[]) as t (tag, job) where t.job in (select id from put)
    on conflict do nothing
)
select id, due_at <= submitted_at, submitted_at, due_at > submitted_at or deadline_at is not null from put

-- name: insert_branch_children
-- Puts children of branches in, a chunk of them, unless their ids are there: those due now into the ready set, the others
-- among the timers. With $21 they are added to what was spawned in their branches, once for each branch. Without $27 they go
-- into no place: what becomes of them is written next. Touches neither their parents nor, for each of them, the branch. Rows
-- are sorted by id.
with clock as materialized (
    select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now
), put as (
    insert into jobs (id, submitted_at, due_at, deadline_at, lane, kind, priority, codec, digest, input, tags, options,
                      settings, stage, parent, branch, spawn, item, item_count)
    select n.id, clock.now, least(greatest(coalesce(n.at, clock.now), clock.now) + n.delay, $26::int8), n.deadline_at,
           n.lane, n.kind, n.priority, n.codec, n.digest, n.input, n.tags, n.options, n.settings, n.stage, n.parent,
           n.branch, n.spawn, n.item, n.item_count
    from clock, unnest($2::uuid[], $3::int4[], $4::int4[], $5::int2[], $6::int8[], $7::int8[], $8::int8[], $9::bytea[],
                       $10::int2[], $11::bytea[], $12::text[], $13::text[], $14::text[], $15::text[], $16::uuid[],
                       $17::int8[], $18::int2[], $19::text[], $20::int4[])
         as n (id, lane, kind, priority, at, delay, deadline_at, digest, codec, input, tags, options, settings, stage,
               parent, branch, spawn, item, item_count)
    on conflict do nothing
    returning id, lane, priority, submitted_at, due_at, deadline_at, parent, branch, item_count
), to_ready as (
    insert into ready (lane, rank, job)
    select lane, due_at + priority * $24::int8, id from put where due_at <= submitted_at and $27::bool
), to_timers as (
    insert into timers (due_at, job, purpose)
    select due_at, id, 0 from put where due_at > submitted_at
    union all select deadline_at, id, 1 from put where deadline_at is not null
), to_tags as (
    insert into tags (tag, job)
    select t.tag, t.job from unnest($22::text[], $23::uuid[]) as t (tag, job) where t.job in (select id from put)
    on conflict do nothing
), to_branches as (
    update branches b set spawned = b.spawned + k.n
    from (select parent, branch, sum(coalesce(item_count, 1)) as n from put group by parent, branch) k
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

-- name: remove
-- Takes a job back that this transaction has put in, because its unique name is taken.
with gone as (
    delete from jobs where id = $1::uuid returning id, due_at, deadline_at, tags
), untagged as (
    delete from tags t using gone g
    where g.tags is not null and t.job = g.id and t.tag in (select jsonb_array_elements_text(g.tags::jsonb))
)
delete from timers t using gone g
where t.job = g.id and ((t.due_at = g.due_at and t.purpose = 0) or (t.due_at = g.deadline_at and t.purpose = 1))
