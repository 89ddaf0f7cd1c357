-- Ends jobs well, those whose epoch and rev are their change's and whose claim is recorded: the claims of the batch, $10 and $11,
-- are looked for once (a hashed subplan; `is true` keeps it from becoming a join for each job). Walks the primary keys of jobs
-- and claims; locks jobs in the order given, which is by id. Answers the ids it wrote, whether something is kept beside them that is to be forgotten, and
-- what their ends count for: parent, branch and how many children they stand for that are not counted yet.
update jobs j
set state = 1, rev = j.rev + 1, rev_epoch = j.epoch, rev_claim = c.claim, worker = c.worker, started_at = c.started_at,
    finished_at = coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8),
    output_codec = c.codec, output = c.output
from unnest($2::uuid[], $3::int4[], $4::int4[], $5::int8[], $6::int8[], $7::int2[], $8::bytea[], $9::int8[])
     as c (id, epoch, rev, worker, started_at, codec, output, claim)
where j.id = c.id and j.epoch = c.epoch and j.rev = c.rev and j.state = 0
  and ((c.worker, c.claim) in (select k.worker, k.number from unnest($10::int8[], $11::int8[]) as d (worker, number)
                               join claims k on k.worker = d.worker and k.number = d.number)) is true
returning j.id, j.hold is not null or j.branched is not null, j.parent, j.branch, coalesce(j.items, 1) - coalesce(j.tallied, 0)
