-- name: unsuccessful_children
-- The same as children.branch_children for children that failed or were cancelled, of which there is an index: passes over all others
-- unseen. Walks jobs_branch_unsuccessful.
select j.id, j.lane, j.priority, j.state, j.reason, j.attempts, j.submitted_at, j.due_at, j.finished_at, j.key,
       (coalesce(j.hold, 0) = 2 or exists (select 1 from ready r
               where r.lane in (j.lane, -j.lane) and r.rank = j.due_at + j.priority * $1::int8 and r.job = j.id)
        or exists (select 1 from serial_waiting l where l.serial_key = j.serial_key and l.serial_position = j.serial_position and l.job = j.id)),
       exists (select 1 from timers t where t.due_at = j.due_at and t.job = j.id and t.purpose = 0),
       coalesce(j.parked, 0) = 1, j.stage,
       j.spawn, j.item, coalesce(j.item_count, 1), coalesce(j.items_counted, 0), j.failure, j.output_codec, j.output, j.codec, j.input,
       j.data_codec, j.data,
       null::uuid
from jobs j
where (j.parent, j.branch, j.id) > ($2::uuid, $3::int8, coalesce($4::uuid, '00000000-0000-0000-0000-000000000000'::uuid))
  and (j.parent, j.branch) <= ($2, $3) and j.branch is not null and j.unsuccessful_state is not null
order by j.parent, j.branch, j.id
limit $5::int8

-- name: branches
-- The branches of a job, by number, with the sums of what has ended in them. Walks the primary keys of branches and tallies.
select b.number, b.name, b.spawns, b.cursor_codec, b.cursor, b.sealed, b.cancels_children, b.spawned, b.watch, b.merge_record, b.opened_at,
       b.merged_at, b.poll, b.poll_at, t.started, t.done, t.failed, t.cancelled
from branches b
cross join lateral (
    select coalesce(sum(started), 0)::int8 as started, coalesce(sum(done), 0)::int8 as done,
           coalesce(sum(failed), 0)::int8 as failed, coalesce(sum(cancelled), 0)::int8 as cancelled
    from branch_counts where job = b.job and branch = b.number
) t
where b.job = $1::uuid
order by b.number

-- name: children
-- Jobs that one job submitted, oldest first, those of its branches included. Walks jobs_parent, and jobs_branch from branch to
-- branch, as ranges and order leave no other way.
with recursive numbers as (
    (select branch from jobs where parent = $2::uuid and branch is not null order by branch limit 1)
    union all
    select n.branch from numbers
    cross join lateral (
        select j.branch from jobs j where j.parent = $2 and j.branch > numbers.branch and j.branch is not null
        order by j.branch limit 1
    ) n
), ids as materialized (
    select id from (
        (select j.id from jobs j
         where (j.parent, j.id) > ($2, coalesce($3::uuid, '00000000-0000-0000-0000-000000000000'::uuid)) and j.parent <= $2
           and j.parent is not null and j.branch is null
         order by j.parent, j.id limit $4)
        union all
        select c.id from numbers cross join lateral (
            select j.id from jobs j
            where (j.parent, j.branch, j.id)
                  > ($2, numbers.branch, coalesce($3::uuid, '00000000-0000-0000-0000-000000000000'::uuid))
              and (j.parent, j.branch) <= ($2, numbers.branch) and j.branch is not null
            order by j.parent, j.branch, j.id limit $4
        ) c
    ) all_of_them order by id limit $4
)
select j.id, j.lane, j.priority, j.state, j.reason, j.attempts, j.submitted_at, j.due_at, j.finished_at, j.key,
       (coalesce(j.hold, 0) = 2 or exists (select 1 from ready r
               where r.lane in (j.lane, -j.lane) and r.rank = j.due_at + j.priority * $1::int8 and r.job = j.id)
        or exists (select 1 from serial_waiting l where l.serial_key = j.serial_key and l.serial_position = j.serial_position and l.job = j.id)),
       exists (select 1 from timers t where t.due_at = j.due_at and t.job = j.id and t.purpose = 0),
       coalesce(j.parked, 0) = 1, j.stage
from ids join jobs j on j.id = ids.id
order by j.id

-- name: child_ends
-- The children whose end one wait of a job counts, by id, and how they ended. Walks jobs_parent, as ranges and
-- order leave no other way.
select j.id, k.name, j.key, j.state, j.reason, j.failure, j.output_codec, j.output
from jobs j join kinds k on k.id = j.kind
where (j.parent, j.id) > ($1::uuid, coalesce($3::uuid, '00000000-0000-0000-0000-000000000000'::uuid)) and j.parent <= $1 and j.parent_rev = $2
  and j.parent is not null and j.branch is null
order by j.parent, j.id
limit $4

-- name: branch_children
-- Of $7 children of a branch, by id, at most $6, of the states in $5, if it is given; and in each row, of which there is at
-- least one, the last child looked at, if there may be more. Walks jobs_branch, as ranges and order leave no other way.
with page as materialized (
    select id, state from jobs
    where (parent, branch, id) > ($2::uuid, $3::int8, coalesce($4::uuid, '00000000-0000-0000-0000-000000000000'::uuid))
      and (parent, branch) <= ($2, $3) and branch is not null
    order by parent, branch, id
    limit $7::int8
), meant as materialized (
    select id from page where $5::int2[] is null or state = any($5) order by id limit $6::int8
)
select j.id, j.lane, j.priority, j.state, j.reason, j.attempts, j.submitted_at, j.due_at, j.finished_at, j.key,
       (coalesce(j.hold, 0) = 2 or exists (select 1 from ready r
               where r.lane in (j.lane, -j.lane) and r.rank = j.due_at + j.priority * $1::int8 and r.job = j.id)
        or exists (select 1 from serial_waiting l where l.serial_key = j.serial_key and l.serial_position = j.serial_position and l.job = j.id)),
       exists (select 1 from timers t where t.due_at = j.due_at and t.job = j.id and t.purpose = 0),
       coalesce(j.parked, 0) = 1, j.stage,
       j.spawn, j.item, coalesce(j.item_count, 1), coalesce(j.items_counted, 0), j.failure, j.output_codec, j.output, j.codec, j.input,
       j.data_codec, j.data,
       case when (select count(*) from page) = $7 then (select id from page order by id desc limit 1) end
from (select 1) as always left join (meant join jobs j on j.id = meant.id) on true
order by j.id
