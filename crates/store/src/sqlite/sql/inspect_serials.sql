-- Serial keys that are held or waited for, or the one named, with how many hold a slot and how many wait, up to 10,000.
select s.key, s.slots, (select count(*) from windlass_holders h where h.serial = s.id),
       (select count(*) from (select 1 from windlass_line l where l.serial = s.id limit 10000))
from windlass_serials s
where case when ?1 is null
           then exists (select 1 from windlass_holders h where h.serial = s.id) or exists (select 1 from windlass_line l where l.serial = s.id)
           else s.key = ?1 end
order by s.key
limit ?2
