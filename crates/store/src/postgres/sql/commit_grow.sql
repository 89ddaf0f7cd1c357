-- Writes what steps do to branches of their jobs, which are locked: more spawns, cursors, seals, watches, merges and cuts;
-- and adds to what was spawned. What is to be looked at moves the gate of the timers; what is cut is looked at no later
-- for it. Walks the primary key of branches.
with clock as materialized (
    select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now
), grown as (
    update branches b
    set spawns = coalesce(g.spawns, b.spawns), cursor_codec = coalesce(g.codec, b.cursor_codec),
        cursor = coalesce(g.cursor, b.cursor), sealed = b.sealed or g.seal, goal = coalesce(g.goal, b.goal),
        watch = case when not g.merge then coalesce(g.watch, b.watch) end,
        merged_at = case when g.merge then clock.now when g.watch is null then b.merged_at end, cut = b.cut or g.cut,
        poll_at = case when g.cut then clock.now when b.cut and b.poll_at is not null then b.poll_at
                  when g.merge and not b.cut then null when g.watch is not null then clock.now + g.pace else b.poll_at end,
        spawned = b.spawned + g.spawned
    from clock, unnest($2::uuid[], $3::int8[], $4::text[], $5::int2[], $6::bytea[], $7::bool[], $8::text[], $9::int8[],
                       $10::text[], $11::bool[], $12::bool[], $13::int8[])
         as g (job, number, spawns, codec, cursor, seal, watch, pace, goal, merge, cut, spawned)
    where b.job = g.job and b.number = g.number
    returning g.cut or g.watch is not null as polled
)
insert into gates (queue, writer, version)
select 0, $14::int8, (random() * 1e12)::int8 where exists (select from grown where polled)
on conflict (queue, writer) do update set version = gates.version + 1
