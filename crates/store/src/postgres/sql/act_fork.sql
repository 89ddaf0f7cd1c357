-- Gives a job that was just put in what another has of stage, data and journal before the place $3, and an entry there
-- that says so. Walks the primary keys of jobs and journal.
with copied as (
    insert into journal (job, seq, op, mark, name, key, line, at, codec, payload)
    select $2::uuid, seq, op, mark, name, key, line, at, codec, payload from journal
    where job = $1::uuid and seq < $3::int4
), noted as (
    insert into journal (job, seq, op, mark, name, at, codec, payload)
    values ($2, $3, $4::int2, $5::int2, $6::text, $7::int8, $8::int2, $9::bytea)
)
update jobs n
set rev = 1, stage = o.stage, data_codec = o.data_codec, data = o.data, undo = case when o.undo is not null then true end
from jobs o where n.id = $2 and o.id = $1
