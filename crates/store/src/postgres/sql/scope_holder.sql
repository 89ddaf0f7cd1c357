-- Where the job stands that last took a unique name, if it is there still.
select j.id, j.state,
       coalesce(j.hold, 0) = 2
       or exists (select 1 from ready r
                  where r.lane in (j.lane, -j.lane) and r.rank = j.due_at + j.priority * $2::int8 and r.job = j.id)
       or exists (select 1 from line l where l.serial = j.serial and l.place = j.place and l.job = j.id),
       exists (select 1 from timers t where t.due_at = j.due_at and t.job = j.id and t.what = 0),
       j.submitted_at, j.settings, j.digest, coalesce(j.parked, 0) = 1
from jobs j where j.id = $1::uuid
