-- One job in line for each serial key that has one: the keys to settle. Walks the primary key of line from key to key.
with recursive keys as (
    (select serial, job from line order by serial, place limit 1)
    union all
    select n.serial, n.job from keys
    cross join lateral (select serial, job from line where line.serial > keys.serial order by serial, place limit 1) n
)
select job from keys
