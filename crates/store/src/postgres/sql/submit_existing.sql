-- What stood in the way of jobs that submit did not write, by id and by kind and key; and which of them an earlier
-- send of the same submit had claimed. A statement of its own: the one before could not see what it waited for.
select j.id, j.digest, null::int4, null::text,
       exists (select 1 from claims c where c.worker = $1 and c.number = $2 and j.id = any(c.jobs))
from jobs j where j.id = any($3::uuid[])
union all
select j.id, j.digest, j.kind, j.key, false
from unnest($4::int4[], $5::text[]) as k (kind, key) join jobs j on j.kind = k.kind and j.key = k.key
