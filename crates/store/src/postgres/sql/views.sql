-- Inspect, as far as what limits jobs goes: holds, queues, workers, rate limits, serial keys, schedules and the audit log. Reads only, and locks
-- nothing.

-- name: holds
-- Reads what keeps a live job from running: whether it is a suspect; pauses of the job and its queue; a cancel request; its serial key,
-- and whether it has a slot or waits for one; its rate limit; its rank and how many jobs are before it, up to 1,000; the store's clock; and
-- what it waits for. $2 is the span by which priority moves the rank, $3 the job. Walks primary keys.
select j.suspect, j.serial_key is not null, p.at, p.author, p.note, q.paused_at, q.paused_by, q.paused_note,
       c.deadline_at, c.author, c.note, s.key, s.slots, j.serial_key, j.serial_position,
       exists (select from serial_holders h where h.serial_key = j.serial_key and h.job = j.id),
       exists (select from serial_waiting w where w.serial_key = j.serial_key and w.serial_position = j.serial_position and w.job = j.id offset 0),
       l.rate_limit, j.rate_weight, r.rank,
       (select count(*) from (
            select from ready a
            where r.rank is not null and a.lane = r.lane and (a.rank, a.job) < (r.rank, r.job) limit 1000
        ) ahead),
       {{common.now}},
       case when j.parked = 1 then j.wait end, j.wait_until, j.pending_children,
       case when j.parked = 1 then array(select distinct s.name from signals s where s.job = j.id and s.unreadable is null) end, j.parked_at
from jobs j
join lanes l on l.id = j.lane
join queues q on q.id = l.queue
left join paused_jobs p on p.job = j.id
left join cancel_requests c on c.job = j.id
left join serial_keys s on s.id = j.serial_key
left join lateral (
    select r.lane, r.rank, r.job from ready r
    where r.lane in (j.lane, -j.lane) and r.rank = j.due_at + j.priority * $2::int8 and r.job = j.id limit 1
) r on true
where j.id = $3 and j.state = 0

-- name: serial_hold
-- Reads who has slots of a serial key, at most 10, and how many jobs wait before a position, up to 1,000. Walks primary keys.
select array(select h.job from serial_holders h where h.serial_key = $1 order by h.job limit 10),
       (select count(*) from (
            select from serial_waiting w where w.serial_key = $1 and (w.serial_position, w.job) < ($2::int8, $3::uuid) limit 1000
        ) ahead)

-- name: workers
-- Lists workers, and how many claims each has.
select w.id, w.name, w.liveness_file, w.status, w.lease_until, (select count(*) from claims c where c.worker = w.id),
       w.serves, w.lost_at
from workers w order by w.id

-- name: queues
-- Lists queues, who paused them, and since when the oldest ready job of each waits. Reads the first ready row of each lane.
select q.name, q.paused_at, q.paused_by, q.paused_note,
       (select min(j.due_at) from lanes l
        cross join lateral (
            (select r.job from ready r where r.lane = l.id order by r.rank, r.job limit 1)
            union all
            (select r.job from ready r where r.lane = -l.id order by r.rank, r.job limit 1)
        ) h
        join jobs j on j.id = h.job
        where l.queue = q.id)
from queues q order by q.name collate "C"

-- name: rate_limits
-- Counts how many jobs wait for each rate limit, up to 10,000. Walks the primary key of ready.
select b.name, (
    select count(*) from (
        select 1 from lanes l
        cross join lateral (
            (select 1 from ready r where r.lane = l.id limit 10000)
            union all
            (select 1 from ready r where r.lane = -l.id limit 10000)
        ) w
        where l.rate_limit = b.id limit 10000
    ) s)
from rate_limits b

-- name: serial_keys
-- Lists serial keys that are held or waited for, or the one named, with how many jobs hold a slot and how many wait, up to 10,000.
select s.key, s.slots, (select count(*) from serial_holders h where h.serial_key = s.id),
       (select count(*) from (select from serial_waiting w where w.serial_key = s.id limit 10000) waiting)
from serial_keys s
where case when $1::text is null
      then exists (select from serial_holders h where h.serial_key = s.id) or exists (select from serial_waiting w where w.serial_key = s.id)
      else s.key = $1 end
order by s.key collate "C"
limit $2

-- name: schedules
-- Lists schedules.
select spec, codec, input, next_at, paused_at, paused_by, paused_note, last_job from schedules order by name collate "C"

-- name: firings
-- Lists what a schedule fired, newest first. Walks the primary key backwards.
select f.tick, f.job from schedules s join schedule_firings f on f.schedule = s.id where s.name = $1 order by f.tick desc limit $2

-- name: misses
-- Lists what a schedule missed, newest first. Walks the primary key backwards.
select m.at, m.first, m.last, m.count, m.at_least, m.why
from schedules s join schedule_misses m on m.schedule = s.id where s.name = $1 order by m.at desc limit $2

-- name: audit_log
-- Lists entries of the audit log, newest first. Walks the primary key or audit_log_subject backwards.
select number, at, author, action, subject, note from audit_log
where ($1::text is null or subject = $1) and number < coalesce($2::int8, 9223372036854775807)
order by number desc
limit $3
