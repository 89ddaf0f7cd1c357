-- Of a job that is to be forked, whether an entry stands at the place $2 of its journal, and where the last one stands. The
-- job is locked by an earlier statement, so that nobody adds to it meanwhile. Walks the primary keys of jobs and journal.
select exists (select from journal e where e.job = j.id and e.seq = $2::int4),
       (select max(e.seq) from journal e where e.job = j.id)
from jobs j where j.id = $1::uuid
