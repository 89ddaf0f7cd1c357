-- Whether a claim would find nothing: the worker serves, the number is new, and the lanes (a JSON array) are empty.
-- Answers no row for a worker that is not there. Walks the primary keys.
select w.life = 0 and w.lease_until > ?4
   and not exists (select 1 from claims c where c.worker = w.id and c.number = ?2)
   and not exists (select 1 from json_each(?3) l where exists (select 1 from ready r where r.lane = l.value))
from workers w where w.id = ?1
