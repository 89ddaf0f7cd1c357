-- The same as commit_done for a batch in which there are children of branches: their ends are counted in the lane $9 of
-- each branch, as far as it is there. Locks jobs in the order given, which is by id, then tallies by job and branch. Whoever
-- sends it looks at the branches afterwards: see commit_look.
with wrote as (
    update jobs j
    set state = 1, rev = j.rev + 1, rev_epoch = j.epoch, rev_claim = c.claim, worker = c.worker, started_at = c.started_at,
        finished_at = coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8),
        output_codec = c.codec, output = c.output
    from unnest($2::uuid[], $3::int4[], $4::int4[], $5::int8[], $6::int8[], $7::int2[], $8::bytea[], $10::int8[])
         as c (id, epoch, rev, worker, started_at, codec, output, claim)
    where j.id = c.id and j.epoch = c.epoch and j.rev = c.rev and j.state = 0
      and ((c.worker, c.claim) in (select k.worker, k.number from unnest($11::int8[], $12::int8[]) as d (worker, number)
                                   join claims k on k.worker = d.worker and k.number = d.number)) is true
    returning j.id, j.hold is not null or j.branched is not null as held, j.parent, j.branch, c.rev,
              coalesce(j.items, 1) - coalesce(j.tallied, 0) as items
), tallied as (
    insert into tallies as t (job, branch, lane, started, done, failed, cancelled)
    select k.parent, k.branch, $9::int4, k.started, k.done, 0, 0
    from (
        select parent, branch, coalesce(sum(items) filter (where rev = 0), 0) as started, sum(items) as done
        from wrote where branch is not null group by parent, branch
    ) k
    where exists (select from branches b where b.job = k.parent and b.number = k.branch)
    order by k.parent, k.branch
    on conflict (job, branch, lane) do update set started = t.started + excluded.started, done = t.done + excluded.done
)
select id, held from wrote
