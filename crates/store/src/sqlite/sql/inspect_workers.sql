-- Workers, and how many claims each has.
select w.id, w.name, w.beacon, w.life, w.lease_until, (select count(*) from claims c where c.worker = w.id), w.serves
from workers w order by w.id
