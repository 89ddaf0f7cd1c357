-- name: copy
-- What a job that is forked hands on, whether entry ?2 is in its journal, and the last one there. Walks the primary keys.
select j.lane, j.priority, j.digest, j.codec,
       case when j.external_payloads & 1 then (select p.bytes from windlass_payloads p where p.job = j.id and p.part = 1) else j.input end,
       j.tags, j.options, j.settings,
       exists (select 1 from windlass_journal e where e.job = j.id and e.seq = ?2),
       (select max(e.seq) from windlass_journal e where e.job = j.id)
from windlass_jobs j where j.id = ?1

-- name: copy_data
-- Gives a fork (?1) the large data of the job it goes on from (?2). Walks the primary key.
insert into windlass_payloads (job, part, bytes) select ?1, part, bytes from windlass_payloads where job = ?2 and part = 4

-- name: copy_stage
-- Gives a fork (?1) the stage and data of the job it goes on from (?2), and what there is to undo. Walks the primary key.
update windlass_jobs as n
set rev = 1, has_undo = f.has_undo, stage = f.stage, data_codec = f.data_codec, data = f.data,
    external_payloads = nullif(coalesce(n.external_payloads, 0) | (coalesce(f.external_payloads, 0) & 4), 0)
from windlass_jobs f
where n.id = ?1 and f.id = ?2

-- name: copy_journal
-- Gives a fork (?1) what the journal of the job it goes on from (?2) says before a place. Walks the primary key.
insert into windlass_journal (job, seq, op, mark, name, key, source_line, at, codec, payload)
select ?1, seq, op, mark, name, key, source_line, at, codec, payload from windlass_journal where job = ?2 and seq < ?3
