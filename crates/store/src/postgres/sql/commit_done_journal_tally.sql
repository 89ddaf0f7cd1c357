-- The same as commit_done_journal for a batch in which there are children of branches, whose ends are counted as by
-- commit_done_tally, in the lane $19.
with wrote as (
    update jobs j
    set state = 1, rev = j.rev + 1, rev_epoch = j.epoch, rev_claim = c.claim, worker = c.worker, started_at = c.started_at,
        finished_at = coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8),
        output_codec = c.codec, output = c.output
    from unnest($2::uuid[], $3::int4[], $4::int4[], $5::int8[], $6::int8[], $7::int2[], $8::bytea[], $20::int8[])
         as c (id, epoch, rev, worker, started_at, codec, output, claim)
    where j.id = c.id and j.epoch = c.epoch and j.rev = c.rev and j.state = 0
      and ((c.worker, c.claim) in (select k.worker, k.number from unnest($21::int8[], $22::int8[]) as d (worker, number)
                                   join claims k on k.worker = d.worker and k.number = d.number)) is true
    returning j.id, j.hold is not null or j.branched is not null as held, j.parent, j.branch, c.rev,
              coalesce(j.items, 1) - coalesce(j.tallied, 0) as items
), journaled as (
    insert into journal (job, seq, op, mark, name, key, line, at, codec, payload)
    select e.* from unnest($9::uuid[], $10::int4[], $11::int2[], $12::int2[], $13::text[], $14::text[],
                           $15::text[], $16::int8[], $17::int2[], $18::bytea[])
         as e (job, seq, op, mark, name, key, line, at, codec, payload)
    where (e.job in (select id from wrote)) is true
), tallied as (
    insert into tallies as t (job, branch, lane, started, done, failed, cancelled)
    select k.parent, k.branch, $19::int4, k.started, k.done, 0, 0
    from (
        select parent, branch, coalesce(sum(items) filter (where rev = 0), 0) as started, sum(items) as done
        from wrote where branch is not null group by parent, branch
    ) k
    where exists (select from branches b where b.job = k.parent and b.number = k.branch)
    order by k.parent, k.branch
    on conflict (job, branch, lane) do update set started = t.started + excluded.started, done = t.done + excluded.done
)
select id, held from wrote
