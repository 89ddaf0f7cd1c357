-- What a job that is forked hands on, whether entry ?2 is in its journal, and the last one there. Walks the primary keys.
select j.lane, j.priority, j.digest, j.codec,
       case when j.far & 1 then (select p.bytes from windlass_payloads p where p.job = j.id and p.what = 1) else j.input end,
       j.tags, j.options, j.settings,
       exists (select 1 from windlass_journal e where e.job = j.id and e.seq = ?2),
       (select max(e.seq) from windlass_journal e where e.job = j.id)
from windlass_jobs j where j.id = ?1
