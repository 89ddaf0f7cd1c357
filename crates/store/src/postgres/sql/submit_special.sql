-- Puts a batch of jobs in that need more than a row and a place, unless their ids or keys are there: they enter by
-- further statements. Sets their timers. Answers the ids it wrote, which are due, and which have timers. Rows are sorted as by submit.
with clock as materialized (
    select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now
), put as (
    insert into jobs (id, submitted_at, due_at, deadline_at, lane, kind, priority, codec, digest, input, key, tags,
                      options, settings, parent, serial, place, weight, keeps, stage, round, branch, spawn, item, items)
    select n.id, clock.now, least(greatest(coalesce(n.at, clock.now), clock.now) + n.delay, $18), n.deadline_at,
           n.lane, n.kind, n.priority, n.codec, n.digest, n.input, n.key, n.tags, n.options, n.settings,
           n.parent, n.serial, least(greatest(coalesce(n.at, clock.now), clock.now) + n.delay, $18), n.weight, n.keeps,
           n.stage, n.round, n.branch, n.spawn, n.item, n.items
    from clock, unnest($2::uuid[], $3::int4[], $4::int4[], $5::int2[], $6::int8[], $7::int8[], $8::int8[],
                       $9::bytea[], $10::int2[], $11::bytea[], $12::text[], $13::text[], $14::text[], $15::text[],
                       $19::uuid[], $20::int8[], $21::int4[], $22::bool[], $23::text[], $24::int4[],
                       $25::int8[], $26::int2[], $27::text[], $28::int4[])
         as n (id, lane, kind, priority, at, delay, deadline_at, digest, codec, input, key, tags, options, settings,
               parent, serial, weight, keeps, stage, round, branch, spawn, item, items)
    on conflict do nothing
    returning id, submitted_at, due_at, deadline_at
), to_timers as (
    insert into timers (due_at, job, what)
    select due_at, id, 0 from put where due_at > submitted_at
    union all select deadline_at, id, 1 from put where deadline_at is not null
), to_tags as (
    insert into tags (tag, job)
    select t.tag, t.job from unnest($16::text[], $17::uuid[]) as t (tag, job) where t.job in (select id from put)
    on conflict do nothing
)
select id, due_at <= submitted_at, submitted_at, due_at > submitted_at or deadline_at is not null from put
