-- One job in line for each serial key that has one and a free slot: the keys to settle, a bounded number. Walks the
-- primary key of line from key to key.
with recursive keys as (
    (select serial, job from line order by serial, place limit 1)
    union all
    select n.serial, n.job from keys
    cross join lateral (select serial, job from line where line.serial > keys.serial order by serial, place limit 1) n
)
select k.job from keys k join serials s on s.id = k.serial
where (select count(*) from (select from holders h where h.serial = s.id limit s.slots) held) < s.slots
limit 1000
