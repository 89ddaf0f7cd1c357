-- Serial keys that are held or waited for; with a key, that one.
select s.key, s.slots, (select count(*) from holders h where h.serial = s.id),
       (select count(*) from (select from line l where l.serial = s.id limit 10000) w)
from serials s
where case when $1::text is null
      then exists (select from holders h where h.serial = s.id) or exists (select from line l where l.serial = s.id)
      else s.key = $1 end
order by s.key collate "C"
limit $2
