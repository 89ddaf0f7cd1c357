-- The same as commit_done for workflows, with entries of their journals. Walks the primary key of jobs; locks jobs in the
-- order given, which is by id. Answers the ids it wrote.
with wrote as (
    update jobs j
    set state = 1, rev = j.rev + 1, rev_epoch = j.epoch, rev_claim = c.claim, worker = c.worker, started_at = c.started_at,
        finished_at = coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8),
        output_codec = c.codec, output = c.output
    from unnest($2::uuid[], $3::int4[], $4::int4[], $5::int8[], $6::int8[], $7::int2[], $8::bytea[], $19::int8[])
         as c (id, epoch, rev, worker, started_at, codec, output, claim)
    where j.id = c.id and j.epoch = c.epoch and j.rev = c.rev and j.state = 0
      and ((c.worker, c.claim) in (select k.worker, k.number from unnest($20::int8[], $21::int8[]) as d (worker, number)
                                   join claims k on k.worker = d.worker and k.number = d.number)) is true
    returning j.id, j.hold is not null or j.branched is not null as held, j.parent, j.branch, coalesce(j.items, 1) - coalesce(j.tallied, 0) as items
), journaled as (
    insert into journal (job, seq, op, mark, name, key, line, at, codec, payload)
    select e.* from unnest($9::uuid[], $10::int4[], $11::int2[], $12::int2[], $13::text[], $14::text[],
                           $15::text[], $16::int8[], $17::int2[], $18::bytea[])
         as e (job, seq, op, mark, name, key, line, at, codec, payload)
    where (e.job in (select id from wrote)) is true
)
select id, held, parent, branch, items from wrote
