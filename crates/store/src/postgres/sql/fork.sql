-- Control::fork: copies stage, data and part of the journal of one job to a new one. Locks the origin (commit.lock_jobs). SQLite copies by
-- several statements.

-- name: read_job
-- Reads what a fork takes over from a job. Walks the primary key.
select lane, priority, tags, options, settings, codec, input, digest from jobs where id = $1::uuid

-- name: find_entry
-- Reads whether entry $2 exists in the journal of a job, and its last entry. The job is locked, so that nobody adds entries. Walks the
-- primary keys of jobs and journal.
select exists (select from journal e where e.job = j.id and e.seq = $2::int4),
       (select max(e.seq) from journal e where e.job = j.id)
from jobs j where j.id = $1::uuid

-- name: copy
-- Copies the stage, the data, what is to be undone and the journal before entry $3 of job $1 to its fork $2, and adds an entry that says
-- so. Walks the primary keys of jobs and journal.
with copied as (
    insert into journal (job, seq, call_kind, event, name, key, source_line, at, codec, payload)
    select $2::uuid, seq, call_kind, event, name, key, source_line, at, codec, payload from journal
    where job = $1::uuid and seq < $3::int4
), noted as (
    insert into journal (job, seq, call_kind, event, name, at, codec, payload)
    values ($2, $3, $4::int2, $5::int2, $6::text, $7::int8, $8::int2, $9::bytea)
)
update jobs fork
set rev = 1, stage = origin.stage, data_codec = origin.data_codec, data = origin.data,
    has_undo = case when origin.has_undo is not null then true end
from jobs origin where fork.id = $2 and origin.id = $1
