-- Where a job stands in a branch of its parent. Walks primary keys.
select j.branch, b.name, b.spawns, j.spawn, j.item, coalesce(j.items, 1)
from windlass_jobs j join windlass_branches b on b.job = j.parent and b.number = j.branch
where j.id = ?1
