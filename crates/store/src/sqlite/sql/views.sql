-- Inspect, as far as what limits jobs goes: holds, queues, workers, rate limits, serial keys, schedules and the audit log. Reads only.

-- name: holds
-- Reads who paused a job, who requested it to end, and who paused its queue. Walks primary keys.
select p.at, p.author, p.note, c.deadline_at, c.author, c.note, q.paused_at, q.paused_by, q.paused_note
from windlass_lanes l join windlass_queues q on q.id = l.queue
left join windlass_paused_jobs p on p.job = ?1
left join windlass_cancel_requests c on c.job = ?1
where l.id = ?2

-- name: jobs_ahead
-- Counts the jobs before a position of a lane in the ready set, up to 1,000. Walks the primary key of ready.
select count(*) from (select 1 from windlass_ready where lane = ?1 and (rank, job) < (?2, ?3) limit 1000)

-- name: serial_hold
-- Reads a job's serial key: the key, its slots, whether the job has one, and how many jobs wait before it, up to 1,000. Walks primary
-- keys.
select s.key, s.slots, exists (select 1 from windlass_serial_holders h where h.serial_key = s.id and h.job = ?2),
       case when exists (select 1 from windlass_serial_waiting w where w.serial_key = s.id and w.serial_position = ?3 and w.job = ?2)
            then (select count(*) from (select 1 from windlass_serial_waiting w
                                        where w.serial_key = ?1 and (w.serial_position, w.job) < (?3, ?2) limit 1000))
            else 0 end
from windlass_serial_keys s where s.id = ?1

-- name: serial_holders
-- Lists the jobs that have slots of a serial key, at most 10. Walks the primary key.
select job from windlass_serial_holders where serial_key = ?1 order by job limit 10

-- name: workers
-- Lists workers, and how many claims each has.
select w.id, w.name, w.liveness_file, w.status, w.lease_until, (select count(*) from windlass_claims c where c.worker = w.id), w.serves,
       w.lost_at
from windlass_workers w order by w.id

-- name: queues
-- Lists queues, who paused them, and since when the oldest ready job of each waits. Reads the first ready row of each lane.
select q.name, q.paused_at, q.paused_by, q.paused_note,
       (select min((select j.due_at from windlass_ready r join windlass_jobs j on j.id = r.job
                    where r.lane = l.id * s.sign order by r.rank, r.job limit 1))
        from windlass_lanes l, (select 1 as sign union all select -1) s where l.queue = q.id)
from windlass_queues q order by q.name

-- name: rate_limits
-- Lists rate limits with their levels, and how many jobs wait for each, up to 10,000.
select b.id, b.name, b.rate, b.per, b.burst, b.level, b.level_at, b.lifted,
       (select count(*) from (select 1 from windlass_lanes l join windlass_ready r on r.lane in (l.id, -l.id)
                              where l.rate_limit = b.id limit 10000))
from windlass_rate_limits b order by b.name

-- name: serial_keys
-- Lists serial keys that are held or waited for, or the one named, with how many jobs hold a slot and how many wait, up to 10,000.
select s.key, s.slots, (select count(*) from windlass_serial_holders h where h.serial_key = s.id),
       (select count(*) from (select 1 from windlass_serial_waiting w where w.serial_key = s.id limit 10000))
from windlass_serial_keys s
where case when ?1 is null
           then exists (select 1 from windlass_serial_holders h where h.serial_key = s.id)
                or exists (select 1 from windlass_serial_waiting w where w.serial_key = s.id)
           else s.key = ?1 end
order by s.key
limit ?2

-- name: schedules
-- Lists schedules, with who paused them.
select {{schedules.schedule}}, paused_at, paused_by, paused_note from windlass_schedules order by name

-- name: firings
-- Lists what a schedule fired, newest first. Walks the primary key backwards.
select f.tick, f.job
from windlass_schedules s join windlass_schedule_firings f on f.schedule = s.id
where s.name = ?1 order by f.tick desc limit ?2

-- name: misses
-- Lists what a schedule missed, newest first. Walks the primary key backwards.
select m.at, m.first, m.last, m.count, m.at_least, m.why
from windlass_schedules s join windlass_schedule_misses m on m.schedule = s.id where s.name = ?1 order by m.at desc limit ?2

-- name: audit_log
-- Lists entries of the audit log, newest first. Walks the primary key or audit_log_subject backwards.
select number, at, author, action, subject, note from windlass_audit_log
where (?1 is null or subject = ?1) and number < coalesce(?2, 9223372036854775807)
order by number desc
limit ?3
