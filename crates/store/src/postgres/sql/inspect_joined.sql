-- The children whose end one wait of a job counts, by id, and how they ended. Walks jobs_parent, as ranges and
-- order leave no other way.
select j.id, k.name, j.key, j.state, j.reason, j.failure, j.output_codec, j.output
from jobs j join kinds k on k.id = j.kind
where (j.parent, j.id) > ($1::uuid, coalesce($3::uuid, '00000000-0000-0000-0000-000000000000'::uuid)) and j.parent <= $1 and j.round = $2
  and j.parent is not null and j.branch is null
order by j.parent, j.id
limit $4
