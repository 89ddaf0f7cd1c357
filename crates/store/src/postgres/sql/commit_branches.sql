-- Of some branches those that are there, and whether they are sealed. The jobs are locked, so that nobody changes that.
-- Walks the primary key.
select b.job, b.number, b.sealed from unnest($1::uuid[], $2::int8[]) as k (job, number)
join branches b on b.job = k.job and b.number = k.number
