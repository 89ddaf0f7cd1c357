-- Who has slots of a serial key, and how many wait before a place in its line.
select array(select h.job from holders h where h.serial = $1 order by h.job limit 10),
       (select count(*) from (
            select from line l where l.serial = $1 and (l.place, l.job) < ($2::int8, $3::uuid) limit 1000
        ) ahead)
