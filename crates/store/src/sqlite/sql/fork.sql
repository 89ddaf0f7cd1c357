-- Control::fork: copies stage, data and part of the journal of one job to a new one. PostgreSQL copies by one statement, after it has
-- locked the origin.

-- name: read_job
-- Reads what a fork takes over from a job, whether entry ?2 exists in its journal, and its last entry. Walks primary keys.
select j.lane, j.priority, j.digest, j.codec, {{common.input}}, j.tags, j.options, j.settings,
       exists (select 1 from windlass_journal e where e.job = j.id and e.seq = ?2),
       (select max(e.seq) from windlass_journal e where e.job = j.id)
from windlass_jobs j where j.id = ?1

-- name: copy_stage
-- Copies the stage, the data and what is to be undone of job ?2 to its fork ?1. Walks the primary key.
update windlass_jobs as fork
set rev = 1, has_undo = origin.has_undo, stage = origin.stage, data_codec = origin.data_codec, data = origin.data,
    external_payloads = nullif(coalesce(fork.external_payloads, 0) | (coalesce(origin.external_payloads, 0) & 4), 0)
from windlass_jobs origin
where fork.id = ?1 and origin.id = ?2

-- name: copy_data
-- Copies external data of job ?2 to its fork ?1. Walks the primary key of payloads.
insert into windlass_payloads (job, part, bytes) select ?1, part, bytes from windlass_payloads where job = ?2 and part = 4

-- name: copy_journal
-- Copies the journal of job ?2 before entry ?3 to its fork ?1. Walks the primary key.
insert into windlass_journal (job, seq, call_kind, event, name, key, source_line, at, codec, payload)
select ?1, seq, call_kind, event, name, key, source_line, at, codec, payload from windlass_journal where job = ?2 and seq < ?3
