-- Where a job stands with its serial key: key, slots, whether it has one, and how many wait before it, up to 1,000.
select s.key, s.slots, exists (select 1 from windlass_holders h where h.serial = s.id and h.job = ?2),
       case when exists (select 1 from windlass_line l where l.serial = s.id and l.place = ?3 and l.job = ?2)
            then (select count(*) from (select 1 from windlass_line l where l.serial = ?1 and (l.place, l.job) < (?3, ?2)
                                        limit 1000))
            else 0 end
from windlass_serials s where s.id = ?1
