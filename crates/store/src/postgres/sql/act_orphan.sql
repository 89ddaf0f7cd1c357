-- Jobs that have branches have ended: nobody waits for those any more. The branches of one that was made to end ($2 is the
-- number of that reason) and that were not merged are cut, and the gate of the timers moves. Walks the primary keys of jobs
-- and branches.
with clock as materialized (
    select coalesce($3::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now
), over as (
    update branches b
    set watch = null, cut = b.cut or (j.cut and b.merged_at is null),
        poll_at = case when j.cut and b.merged_at is null then clock.now when b.cut then b.poll_at end
    from clock, (
        select id, state = 3 or coalesce(reason = $2::int2, false) as cut
        from jobs where id = any($1::uuid[]) and state <> 0 and branched
    ) j
    where b.job = j.id
    returning j.cut and b.merged_at is null as cut
)
insert into gates (queue, writer, version)
select 0, $4::int8, (random() * 1e12)::int8 where exists (select from over where cut)
on conflict (queue, writer) do update set version = gates.version + 1
