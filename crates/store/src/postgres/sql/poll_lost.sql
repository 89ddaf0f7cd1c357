-- Of $4 children of a branch after $3 those that are live and in no place at all, and the last one looked at, if there may be
-- more: ready set, lines, timers and claims are asked, as they were at one moment. Walks jobs_branch, and the primary keys of
-- ready, line and timers.
with page as materialized (
    select j.id, j.epoch,
           j.state = 0 and coalesce(j.parked, 0) <> 1 and coalesce(j.hold, 0) <> 2
           and (select true from ready r where r.lane in (j.lane, -j.lane) and r.rank = j.due_at + j.priority * $5::int8
                                           and r.job = j.id limit 1) is null
           and (select true from line l where l.serial = j.serial and l.place = j.place and l.job = j.id) is null
           and (select true from timers t where t.due_at = j.due_at and t.job = j.id and t.what = 0) is null as nowhere
    from jobs j
    where (j.parent, j.branch, j.id) > ($1::uuid, $2::int8, $3::uuid) and (j.parent, j.branch) <= ($1, $2)
      and j.branch is not null
    order by j.parent, j.branch, j.id
    limit $4::int8
)
select array(
           select id from page
           where nowhere and (id, epoch) not in (
               select p.id, p.epoch from claims c cross join lateral unnest(c.jobs, c.epochs) as p (id, epoch)
           )
       ),
       case when (select count(*) from page) = $4 then (select id from page order by id desc limit 1) end
