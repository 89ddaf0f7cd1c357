-- Opens branches, which are not there, and notes at their jobs, which are locked, that they have some. What else is said of
-- them is written by commit_grow. Walks the primary key of jobs.
with opened as (
    insert into branches (job, number, name, opened_at)
    select o.job, o.number, o.name, coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8)
    from unnest($2::uuid[], $3::int8[], $4::text[]) as o (job, number, name)
)
update jobs set branched = true where id = any($2) and branched is null
