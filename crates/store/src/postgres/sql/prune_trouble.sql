-- The same for failed and cancelled jobs, of which there is an index: passes over all others unseen.
select s.id, s.old, s.old and coalesce(p.state <> 1, false), case when s.old then s.settings end, s.kind, s.submitted_at
from (
    select j.id, j.state = $1::int2 and j.finished_at < $2::int8 and ($5::text is null or k.name = $5) as old,
           j.parent, j.settings, j.kind, j.submitted_at
    from jobs j join kinds k on k.id = j.kind
    where j.trouble = $1 and j.id > coalesce($3::uuid, '00000000-0000-0000-0000-000000000000'::uuid)
    order by j.id
    limit $4
) s
left join jobs p on p.id = s.parent and s.old
order by s.id
