-- Ends jobs well, those whose epoch and rev are their change's. Walks the primary key of jobs; locks jobs in the
-- order given, which is by id. Answers the ids it wrote, whether something is kept beside them that is to be forgotten, and
-- what their ends count for: parent, branch and how many children they stand for that are not counted yet.
update jobs j
set state = 1, rev = j.rev + 1, rev_epoch = j.epoch, worker = c.worker, started_at = c.started_at,
    finished_at = coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8),
    output_codec = c.codec, output = c.output
from unnest($2::uuid[], $3::int4[], $4::int4[], $5::int8[], $6::int8[], $7::int2[], $8::bytea[])
     as c (id, epoch, rev, worker, started_at, codec, output)
where j.id = c.id and j.epoch = c.epoch and j.rev = c.rev and j.state = 0
returning j.id, j.hold is not null or j.branched is not null, j.parent, j.branch, coalesce(j.items, 1) - coalesce(j.tallied, 0)
