-- How a job ended, if it did.
select j.state, j.reason, j.failure, j.output_codec,
       case when j.far & 2 then (select p.bytes from windlass_payloads p where p.job = j.id and p.what = 2) else j.output end
from windlass_jobs j where j.id = ?1
