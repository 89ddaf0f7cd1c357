-- Keeps the lost attempts of jobs of dead workers that are unwound instead of failing as poison; act_unwind comes next.
-- Walks the primary key of jobs, which are locked.
with wrote as (
    update jobs j set failure = f.failure
    from unnest($2::uuid[], $3::int4[], $4::int8[], $5::int8[], $6::text[]) as f (id, epoch, worker, claimed_at, failure)
    where j.id = f.id and j.epoch = f.epoch and j.state = 0
    returning f.*
)
insert into attempts (job, epoch, worker, started_at, ended_at, failure)
select w.id, w.epoch, w.worker, w.claimed_at,
       coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8), w.failure
from wrote w
