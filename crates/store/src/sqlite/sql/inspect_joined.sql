-- The children that one change of a job submitted, in the order of their ids, and how they ended. Walks jobs_parent.
select j.id, j.lane, j.key, j.state, j.reason, j.failure, j.output_codec,
       case when j.far & 2 then (select p.bytes from windlass_payloads p where p.job = j.id and p.what = 2) else j.output end
from windlass_jobs j
where j.parent = ?1 and j.branch is null and j.round = ?2 and j.id > ?3
order by j.id
limit ?4
