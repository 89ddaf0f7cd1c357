-- Ends jobs badly or by their own wish, those whose epoch and rev are their change's and whose claim is recorded, and keeps the attempts.
-- Walks the primary key of jobs. Answers the ids it wrote.
with clock as materialized (
    select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now
), wrote as (
    update jobs j
    set state = c.state, trouble = c.state, rev = j.rev + 1, rev_epoch = j.epoch, rev_claim = c.claim, worker = c.worker,
        started_at = c.started_at, finished_at = clock.now, reason = c.reason, failure = c.failure,
        attempts = j.attempts + c.counts
    from clock, unnest($2::uuid[], $3::int4[], $4::int4[], $5::int8[], $6::int8[], $7::int2[], $8::int2[],
                       $9::text[], $10::int4[], $11::int8[])
         as c (id, epoch, rev, worker, started_at, state, reason, failure, counts, claim)
    where j.id = c.id and j.epoch = c.epoch and j.rev = c.rev and j.state = 0
      and ((c.worker, c.claim) in (select k.worker, k.number from unnest($12::int8[], $13::int8[]) as d (worker, number)
                                   join claims k on k.worker = d.worker and k.number = d.number)) is true
    returning j.id, c.epoch, c.worker, c.started_at, c.failure, j.hold is not null or j.branched is not null as held,
              j.parent, j.branch, coalesce(j.items, 1) - coalesce(j.tallied, 0) as items
), kept as (
    insert into attempts (job, epoch, worker, started_at, ended_at, failure)
    select wrote.id, wrote.epoch, wrote.worker, wrote.started_at, clock.now, wrote.failure from wrote, clock
)
select id, held, parent, branch, items from wrote
