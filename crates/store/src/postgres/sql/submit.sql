-- Puts a batch of jobs in, unless their ids or keys are there; those due now into the ready set or, if the worker
-- named serves and their queue is not paused, into its claim; the others among the timers. Answers the ids it wrote, and whether they were born
-- claimed. Rows are sorted by kind, key and id, so that two batches with
-- the same jobs cannot wait for each other.
with clock as materialized (
    select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now
), me as materialized (
    select w.id from workers w, clock where w.id = $2 and w.life = 0 and w.lease_until > clock.now for key share of w
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
    insert into timers (due_at, job, what)
    select due_at, id, 0 from put where due_at > submitted_at
    union all select deadline_at, id, 1 from put where deadline_at is not null
), to_claim as (
    insert into claims (worker, number, alone, claimed_at, jobs, epochs)
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
