-- A job in the line of a serial key, if there is one: its key is to be settled.
select job from line where serial = $1 order by place, job limit 1
