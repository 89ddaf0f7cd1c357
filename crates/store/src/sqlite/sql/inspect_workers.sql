-- Workers, and how many claims each has.
select w.id, w.name, w.beacon, w.life, w.lease_until, (select count(*) from windlass_claims c where c.worker = w.id), w.serves
from windlass_workers w order by w.id
