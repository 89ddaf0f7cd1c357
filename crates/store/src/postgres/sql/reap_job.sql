-- Jobs of dead workers that are still claimed under their epoch, locked by id.
select j.id, j.epoch, j.deaths, j.crashes
from jobs j
where j.id = any($1::uuid[]) and j.state = 0
order by j.id
for update
