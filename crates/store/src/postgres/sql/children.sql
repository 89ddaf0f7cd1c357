-- Inspect, as far as children and branches go: reads jobs, branches and branch_counts, and locks nothing. In the lists of jobs, $1 is the
-- span by which a job's priority moves its rank. Two indexes hold children, jobs_parent and jobs_branch; SQLite has one for both. jobs_item
-- holds those in branches by their items.
--
-- Ranges are written as row comparisons that no other index can serve: the planner has no choice.

-- name: children
-- Lists children of a job, oldest first, those in its branches included. Walks jobs_parent, and jobs_branch from branch to branch.
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
            where {{in_branch($2, numbers.branch, coalesce($3::uuid, '00000000-0000-0000-0000-000000000000'::uuid))}}
            order by j.parent, j.branch, j.id limit $4
        ) c
    ) found order by id limit $4
)
select {{common.summary($1)}}
from ids join jobs j on j.id = ids.id
order by j.id

-- name: live_children
-- Lists the children of a job that have not ended and that revision $3 submitted, newest first, among its newest $4 outside of branches.
-- Walks jobs_parent backwards. SQLite reads those of branches by the same statement.
with newest as materialized (
    select j.id, j.state, j.parent_rev from jobs j
    where (j.parent, j.id) > ($2::uuid, '00000000-0000-0000-0000-000000000000'::uuid) and j.parent <= $2
      and j.parent is not null and j.branch is null
    order by j.parent desc, j.id desc
    limit $4::int8
)
select {{common.summary($1)}}
from newest n join jobs j on j.id = n.id
where n.state = 0 and n.parent_rev = $3::int4
order by j.id desc

-- name: live_branch_children
-- Lists the children of a branch that have not ended, newest first, among its newest $4. Walks jobs_branch backwards.
with newest as materialized (
    select j.id, j.state from jobs j
    where {{in_branch($2::uuid, $3::int8, '00000000-0000-0000-0000-000000000000'::uuid)}}
    order by j.parent desc, j.branch desc, j.id desc
    limit $4::int8
)
select {{common.summary($1)}}
from newest n join jobs j on j.id = n.id
where n.state = 0
order by j.id desc

-- name: child_ends
-- Lists the children that one wait of a job counts, by id, and how they ended. Walks jobs_parent.
select j.id, k.name, j.key, j.state, j.reason, j.failure, j.output_codec, j.output
from jobs j join kinds k on k.id = j.kind
where (j.parent, j.id) > ($1::uuid, coalesce($3::uuid, '00000000-0000-0000-0000-000000000000'::uuid)) and j.parent <= $1 and j.parent_rev = $2
  and j.parent is not null and j.branch is null
order by j.parent, j.id
limit $4

-- fragment: branch(cursor_codec, cursor)
-- The columns of a branch b; read by `read_branch`.
b.number, b.name, b.spawns, {{cursor_codec}}, {{cursor}}, b.sealed, b.cancels_children, b.spawned, b.watch, b.merge_record, b.opened_at,
b.merged_at, b.poll, b.poll_at, sums.started, sums.done, sums.failed, sums.cancelled, b.sealed_at

-- name: branches
-- Lists the branches of a job, by number, with the sums of what has ended in them. Walks the primary keys of branches and branch_counts.
select {{branch(b.cursor_codec, b.cursor)}}
from branches b
{{branches.sums}}
where b.job = $1::uuid
order by b.number

-- name: open_branches
-- Lists branches that are not merged, those of the newest jobs first, with their jobs and the times that were summed up, at most $2. Where their
-- sources are is left out. Walks branches_open backwards, then primary keys (`offset 0` keeps it from walking all jobs instead).
select j.*, {{branch(null::int2, null::bytea)}}, t.first_start_at, t.last_end_at, t.wait_times, t.run_times
from (
    select * from branches b where b.merged_at is null order by b.job desc, b.number desc limit $2::int8
) b
cross join lateral (select {{common.summary($1)}} from jobs j where j.id = b.job offset 0) j
{{branches.sums}}
left join branch_times t on t.job = b.job and t.branch = b.number
order by b.job desc, b.number desc

-- name: branch_ends
-- Reads the first and the last child of a branch. Walks jobs_branch from both ends.
select (select j.id from jobs j where {{in_branch($1::uuid, $2::int8, '00000000-0000-0000-0000-000000000000'::uuid)}}
        order by j.parent, j.branch, j.id limit 1),
       (select j.id from jobs j where {{in_branch($1, $2, '00000000-0000-0000-0000-000000000000'::uuid)}}
        order by j.parent desc, j.branch desc, j.id desc limit 1)

-- name: branch_ranges
-- Lists the first $6 children of each of some ranges ($4, $5) of a branch, by range and id. Walks jobs_branch, once for each range.
with children as materialized (
    select r.number, c.id from unnest($4::uuid[], $5::uuid[]) with ordinality r (first, last, number)
    cross join lateral (
        select j.id from jobs j
        where (j.parent, j.branch, j.id) >= ($2::uuid, $3::int8, r.first) and (j.parent, j.branch, j.id) <= ($2, $3, r.last)
          and j.branch is not null
        order by j.parent, j.branch, j.id
        limit $6::int8
    ) c
)
select {{common.summary($1)}}, j.item, coalesce(j.item_count, 1), coalesce(j.items_counted, 0), c.number
from children c join jobs j on j.id = c.id
order by c.number, j.id

-- fragment: in_branch(parent, branch, after)
-- The children of a branch whose ids follow one. Walks jobs_branch, or jobs_branch_unsuccessful.
(j.parent, j.branch, j.id) > ({{parent}}, {{branch}}, {{after}}) and (j.parent, j.branch) <= ({{parent}}, {{branch}})
and j.branch is not null

-- fragment: child
-- The columns of a child of a branch; read by `branch_child`.
{{common.summary($1)}}, j.spawn, j.item, coalesce(j.item_count, 1), coalesce(j.items_counted, 0), j.failure, j.output_codec, j.output,
j.codec, j.input, j.data_codec, j.data

-- name: branch_children
-- Lists, of the next $7 children of a branch by id, at most $6 that are in the states $5 (null for all). Each row, of which there is at
-- least one, ends with the last child that was read if there may be more. Walks jobs_branch.
with page as materialized (
    select j.id, j.state from jobs j
    where {{in_branch($2::uuid, $3::int8, coalesce($4::uuid, '00000000-0000-0000-0000-000000000000'::uuid))}}
    order by j.parent, j.branch, j.id
    limit $7::int8
), matching as materialized (
    select id from page where $5::int2[] is null or state = any($5) order by id limit $6::int8
)
select {{child}}, case when (select count(*) from page) = $7 then (select id from page order by id desc limit 1) end
from (select 1) as always left join (matching join jobs j on j.id = matching.id) on true
order by j.id

-- fragment: bytes
-- The bytes of the payloads of a child. Reads none of them.
(octet_length(j.input)::int8 + coalesce(octet_length(j.output), 0) + coalesce(octet_length(j.data), 0))

-- fragment: fitting(limit, most)
-- Of the children in `matching`, those that a page has: as many as fit, but at least one.
sums as materialized (
    select id, row_number() over (order by id) as place, sum(bytes) over (order by id) as total from matching
), fitting as materialized (
    select id from sums where place = 1 or total <= {{most}}::int8 order by id limit {{limit}}::int8
)

-- fragment: page_of_children(examined)
-- Reads the children in `fitting`. Each row, of which there is at least one, ends with the child after which the next page begins, if any is
-- left: the last of these, or, if all that match are in this page, the last that was examined; and with how many were examined.
select {{child}},
       case when (select count(*) from fitting) < (select count(*) from matching) then (select id from fitting order by id desc limit 1)
            when (select count(*) from page) = {{examined}}::int8 then (select id from page order by id desc limit 1) end,
       (select count(*) from page)
from (select 1) as always left join (fitting join jobs j on j.id = fitting.id) on true
order by j.id

-- name: branch_children_page
-- Lists, of the next $7 children of a branch by id, at most $6 that are in the states $5 (null for all), with at most $8 bytes. Walks
-- jobs_branch.
with page as materialized (
    select j.id, j.state, {{bytes}} as bytes from jobs j
    where {{in_branch($2::uuid, $3::int8, coalesce($4::uuid, '00000000-0000-0000-0000-000000000000'::uuid))}}
    order by j.parent, j.branch, j.id
    limit $7::int8
), matching as materialized (
    select id, bytes from page where $5::int2[] is null or state = any($5)
), {{fitting($6, $8)}}
{{page_of_children($7)}}

-- name: unsuccessful_children_page
-- Lists children of a branch that failed or were cancelled, by id: at most $5, with at most $6 bytes, of the next $7. Walks
-- jobs_branch_unsuccessful, which holds no others.
with page as materialized (
    select j.id, {{bytes}} as bytes from jobs j
    where {{in_branch($2::uuid, $3::int8, coalesce($4::uuid, '00000000-0000-0000-0000-000000000000'::uuid))}}
      and j.unsuccessful_state is not null
    order by j.parent, j.branch, j.id
    limit $7::int8
), matching as materialized (
    select id, bytes from page
), {{fitting($5, $6)}}
{{page_of_children($7)}}

-- name: branch_items
-- Lists the children of a branch that have one of the items $4 of spawn $3, or begin with one. A block and the parts that it was split into
-- may begin with the same one. Walks jobs_item.
select found.id, i.item, found.stage
from unnest($4::text[]) with ordinality as i (item, position)
cross join lateral (
    select j.id, j.stage from jobs j
    where (j.branch, j.parent, j.spawn, coalesce(j.item, '')) >= ($2::int8, $1::uuid, $3::int2, i.item collate "C")
      and (j.branch, j.parent, j.spawn, coalesce(j.item, '')) <= ($2, $1, $3, i.item collate "C")
      and j.branch is not null
    order by j.branch, j.parent, j.spawn, coalesce(j.item, '')
    limit 100
) found
order by i.position, found.id

-- name: child_output_sizes
-- Reads the bytes of the outputs that child_ends lists. Walks jobs_parent.
select coalesce(octet_length(j.output), 0)::int8
from jobs j
where (j.parent, j.id) > ($1::uuid, coalesce($3::uuid, '00000000-0000-0000-0000-000000000000'::uuid)) and j.parent <= $1 and j.parent_rev = $2
  and j.parent is not null and j.branch is null
order by j.parent, j.id
limit $4

-- name: unsuccessful_children
-- Lists children of a branch that failed or were cancelled, by id. Walks jobs_branch_unsuccessful, which holds no others.
select {{child}}, null::uuid
from jobs j
where {{in_branch($2::uuid, $3::int8, coalesce($4::uuid, '00000000-0000-0000-0000-000000000000'::uuid))}}
  and j.unsuccessful_state is not null
order by j.parent, j.branch, j.id
limit $5::int8
