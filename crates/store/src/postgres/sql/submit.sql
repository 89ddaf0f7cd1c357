-- Execution::submit, and all that submits jobs within another verb. Writes jobs and tags, and ready, timers, claims and gates as the jobs are due.
-- Rows are inserted in an order by which two batches with the same jobs do not wait for each other. SQLite inserts one job after the other.
--
-- Parameters of all inserts: $1 time, $2 the latest time there is, $3 to $16 the columns of the jobs, $17 and $18 tags with their jobs.

-- fragment: columns
-- The columns that all jobs have.
id, submitted_at, due_at, deadline_at, lane, kind, priority, codec, digest, input, tags, options, settings, stage

-- fragment: due_at
-- When a job is due that is submitted now.
least(greatest(coalesce(n.at, clock.now), clock.now) + n.delay, $2::int8)

-- fragment: values
-- Their values.
n.id, clock.now, {{due_at}}, n.deadline_at, n.lane, n.kind, n.priority, n.codec, n.digest, n.input, n.tags, n.options, n.settings, n.stage

-- fragment: arrays
-- Their parameters.
$3::uuid[], $4::int4[], $5::int4[], $6::int2[], $7::int8[], $8::int8[], $9::int8[], $10::bytea[], $11::int2[], $12::bytea[],
$13::text[], $14::text[], $15::text[], $16::text[]

-- fragment: names
-- The names of these.
id, lane, kind, priority, at, delay, deadline_at, digest, codec, input, tags, options, settings, stage

-- fragment: add_timers
-- Sets the timers of the jobs that `inserted` has inserted: when they are due, and their deadlines.
to_timers as (
    insert into timers (due_at, job, purpose)
    select due_at, id, 0 from inserted where due_at > submitted_at
    union all select deadline_at, id, 1 from inserted where deadline_at is not null
)

-- fragment: add_tags
-- Adds their tags.
to_tags as (
    insert into tags (tag, job)
    select t.tag, t.job from unnest($17::text[], $18::uuid[]) as t (tag, job) where t.job in (select id from inserted)
    on conflict do nothing
)

-- fragment: count_inserted(writer)
-- Counts them: those that are due later are scheduled.
counted_jobs as (
    {{counts.add({{writer}}, select lane, count(*), count(*) filter (where due_at > submitted_at), 0, 0, 0, 0 from inserted group by lane)}}
)

-- fragment: add_periods(writer, lanes, periods)
-- Notes in which periods jobs of which lanes are inserted, each once.
to_periods as (
    insert into lane_periods (lane, period, writer)
    select p.lane, p.period, {{writer}}::int4 from unnest({{lanes}}::int4[], {{periods}}::int8[]) as p (lane, period)
    where exists (select from inserted)
    order by p.lane, p.period
    on conflict do nothing
)

-- name: insert
-- Inserts jobs, unless their ids or keys exist: those due now into the ready set or, if worker $22 has a lease and the queue is not paused,
-- into its claim $23; the others into timers. $19 keys, $20 the span by which priority moves the rank, $21 the gate writer, $24 that of counts, $25 and $26 lanes and periods. Returns the ids
-- it wrote, and whether they are claimed. Sorted by kind, key and id. Locks the worker (key share), then jobs.
with {{common.clock}}, live_worker as materialized (
    select w.id from workers w, clock where w.id = $22 and w.status = 0 and w.lease_until > clock.now for key share of w
), paused_lanes as materialized (
    select l.id from queues q join lanes l on l.queue = q.id where q.paused_at is not null and exists (select from live_worker)
), inserted as (
    insert into jobs ({{columns}}, key)
    select {{values}}, n.key
    from clock, unnest({{arrays}}, $19::text[]) as n ({{names}}, key)
    on conflict do nothing
    returning id, lane, priority, submitted_at, due_at, deadline_at
), placed as materialized (
    select inserted.*, due_at <= submitted_at as is_due,
           due_at <= submitted_at and exists (select from live_worker) and lane <> all (array(select id from paused_lanes)) as is_claimed
    from inserted
), to_ready as (
    insert into ready (lane, rank, job)
    select lane, due_at + priority * $20::int8, id from placed where is_due and not is_claimed
), {{add_timers}}, to_claim as (
    insert into claims (worker, number, solo, claimed_at, jobs, epochs)
    select live_worker.id, $23, false, clock.now, array_agg(placed.id), array_agg(0)
    from live_worker, clock, placed where placed.is_claimed
    group by live_worker.id, clock.now
    on conflict (worker, number) do update
    set jobs = claims.jobs || excluded.jobs, epochs = claims.epochs || excluded.epochs
), {{add_tags}}, to_gates as (
    {{gates.bump_timers_and_lanes($21, exists (select from inserted where due_at > submitted_at or deadline_at is not null),
        select lane from placed where is_due and not is_claimed)}}
), {{count_inserted($24)}}, {{add_periods($24, $25, $26)}}
select id, is_claimed from placed

-- name: insert_special
-- Inserts jobs that need more than a row and a placement (serial keys, unique names, rate limits, parents, signals), unless their ids or keys
-- exist; later statements make them ready. $19 to $28 are their key, parent, serial key, weight, whether they keep their slot, parent revision, branch,
-- spawn, item and number of items, $29 the writer of counts, $30 and $31 lanes and periods. Returns the ids it wrote, which are due, when they were submitted, and which have timers. Sorted as by insert.
with {{common.clock}}, inserted as (
    insert into jobs ({{columns}}, key, parent, serial_key, serial_position, rate_weight, keeps_slot, parent_rev, branch, spawn, item, item_count)
    select {{values}}, n.key, n.parent, n.serial_key, {{due_at}}, n.rate_weight, n.keeps_slot, n.parent_rev, n.branch, n.spawn, n.item,
           n.item_count
    from clock, unnest({{arrays}}, $19::text[], $20::uuid[], $21::int8[], $22::int4[], $23::bool[], $24::int4[],
                       $25::int8[], $26::int2[], $27::text[], $28::int4[])
         as n ({{names}}, key, parent, serial_key, rate_weight, keeps_slot, parent_rev, branch, spawn, item, item_count)
    on conflict do nothing
    returning id, lane, submitted_at, due_at, deadline_at
), {{add_timers}}, {{add_tags}}, {{count_inserted($29)}}, {{add_periods($29, $30, $31)}}
select id, due_at <= submitted_at, submitted_at, due_at > submitted_at or deadline_at is not null from inserted

-- name: insert_branch_children
-- Inserts children of branches, unless their ids exist: those due now into the ready set, the others into timers; without $27 nowhere, because
-- their first attempt is written next. With $24 they are added to what was spawned in their branches, once for each branch. $19 to $23
-- are parent, branch, spawn, item and number of items, $25 the span by which priority moves the rank, $26 the gate writer, $28 that of counts, $29 and $30 lanes and periods. Writes no row
-- of their parents. Sorted by id.
with {{common.clock}}, inserted as (
    insert into jobs ({{columns}}, parent, branch, spawn, item, item_count)
    select {{values}}, n.parent, n.branch, n.spawn, n.item, n.item_count
    from clock, unnest({{arrays}}, $19::uuid[], $20::int8[], $21::int2[], $22::text[], $23::int4[])
         as n ({{names}}, parent, branch, spawn, item, item_count)
    on conflict do nothing
    returning id, lane, priority, submitted_at, due_at, deadline_at, parent, branch, item_count
), to_ready as (
    insert into ready (lane, rank, job)
    select lane, due_at + priority * $25::int8, id from inserted where due_at <= submitted_at and $27::bool
), {{add_timers}}, {{add_tags}}, to_branches as (
    update branches b set spawned = b.spawned + k.n
    from (select parent, branch, sum(coalesce(item_count, 1)) as n from inserted group by parent, branch) k
    where $24::bool and b.job = k.parent and b.number = k.branch
), {{count_inserted($28)}}, {{add_periods($28, $29, $30)}}
{{gates.bump_timers_and_lanes($26, exists (select from inserted where due_at > submitted_at or deadline_at is not null),
    select lane from inserted where due_at <= submitted_at and $27)}}

-- name: find_existing
-- Reads the jobs that have the ids, or the kinds and keys, of jobs that were not inserted; and which of them an earlier send of the same submit
-- claimed. A statement of its own: the insert could not see what it waited for. Walks the primary key and jobs_key.
select j.id, j.digest, null::int4, null::text,
       exists (select 1 from claims c where c.worker = $1 and c.number = $2 and j.id = any(c.jobs))
from jobs j where j.id = any($3::uuid[])
union all
select j.id, j.digest, j.kind, j.key, false
from unnest($4::int4[], $5::text[]) as k (kind, key) join jobs j on j.kind = k.kind and j.key = k.key

-- name: remove
-- Deletes a job that this transaction has inserted, because its unique name is taken. $2 is the writer of counts. Walks primary keys.
with deleted as (
    delete from jobs where id = $1::uuid returning id, lane, submitted_at, due_at, deadline_at, tags
), counted_jobs as (
    {{counts.add($2, select lane, -count(*), -count(*) filter (where due_at > submitted_at), 0, 0, 0, 0 from deleted group by lane)}}
), deleted_tags as (
    delete from tags t using deleted d
    where d.tags is not null and t.job = d.id and t.tag in (select jsonb_array_elements_text(d.tags::jsonb))
)
delete from timers t using deleted d
where t.job = d.id and ((t.due_at = d.due_at and t.purpose = 0) or (t.due_at = d.deadline_at and t.purpose = 1))
