-- name: copy
-- Gives a job that was just put in what another has of stage, data and journal before the place $3, and an entry there
-- that says so. Walks the primary keys of jobs and journal.
with copied as (
    insert into journal (job, seq, op, mark, name, key, source_line, at, codec, payload)
    select $2::uuid, seq, op, mark, name, key, source_line, at, codec, payload from journal
    where job = $1::uuid and seq < $3::int4
), noted as (
    insert into journal (job, seq, op, mark, name, at, codec, payload)
    values ($2, $3, $4::int2, $5::int2, $6::text, $7::int8, $8::int2, $9::bytea)
)
update jobs n
set rev = 1, stage = o.stage, data_codec = o.data_codec, data = o.data, has_undo = case when o.has_undo is not null then true end
from jobs o where n.id = $2 and o.id = $1

-- name: find_entry
-- Of a job that is to be forked, whether an entry stands at the place $2 of its journal, and where the last one stands. The
-- job is locked by an earlier statement, so that nobody adds to it meanwhile. Walks the primary keys of jobs and journal.
select exists (select from journal e where e.job = j.id and e.seq = $2::int4),
       (select max(e.seq) from journal e where e.job = j.id)
from jobs j where j.id = $1::uuid

-- name: read_job
-- All of a job that a fork of it takes over.
select lane, priority, tags, options, settings, codec, input, digest from jobs where id = $1::uuid
