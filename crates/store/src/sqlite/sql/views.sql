-- name: jobs_ahead
-- How many jobs stand before a place of the ready set in its lane, up to 1,000. Walks the primary key.
select count(*) from (select 1 from windlass_ready where lane = ?1 and (rank, job) < (?2, ?3) limit 1000)

-- name: audit_log
-- Entries of the audit log, newest first. Walks the primary key, or audit_log_subject.
select number, at, author, action, subject, note from windlass_audit_log
where (?1 is null or subject = ?1) and number < coalesce(?2, 9223372036854775807)
order by number desc
limit ?3

-- name: firings
-- What a schedule fired, newest first.
select f.tick, f.job from windlass_schedules s join windlass_schedule_firings f on f.schedule = s.id where s.name = ?1 order by f.tick desc limit ?2

-- name: serial_holders
-- Who has the slots of a serial key, up to 10.
select job from windlass_serial_holders where serial_key = ?1 order by job limit 10

-- name: holds
-- By whom a job is paused, was told to end, and has its queue paused. Walks primary keys.
select p.at, p.author, p.note, o.deadline_at, o.author, o.note, q.paused_at, q.paused_by, q.paused_note
from windlass_lanes l join windlass_queues q on q.id = l.queue
left join windlass_paused_jobs p on p.job = ?1
left join windlass_cancel_requests o on o.job = ?1
where l.id = ?2

-- name: rate_limits
-- All rate limits with what is in their buckets, and how many jobs wait for each, up to 10,000.
select b.id, b.name, b.rate, b.per, b.burst, b.level, b.level_at, b.lifted,
       (select count(*) from (select 1 from windlass_lanes l join windlass_ready r on r.lane in (l.id, -l.id)
                              where l.rate_limit = b.id limit 10000))
from windlass_rate_limits b order by b.name

-- name: misses
-- What a schedule missed, newest first.
select m.at, m.first, m.last, m.count, m.at_least, m.why
from windlass_schedules s join windlass_schedule_misses m on m.schedule = s.id where s.name = ?1 order by m.at desc limit ?2

-- name: queues
-- All queues, by whom they are paused, and when the first job of any of their lanes became due. Looks at one place of
-- each lane.
select q.name, q.paused_at, q.paused_by, q.paused_note,
       (select min((select j.due_at from windlass_ready r join windlass_jobs j on j.id = r.job
                    where r.lane = l.id * s.sign order by r.rank, r.job limit 1))
        from windlass_lanes l, (select 1 as sign union all select -1) s where l.queue = q.id)
from windlass_queues q order by q.name

-- name: schedules
-- All schedules.
select id, spec, codec, input, next_at, last_job, paused_by, paused_at, paused_by, paused_note from windlass_schedules order by name

-- name: serial_hold
-- Where a job stands with its serial key: key, slots, whether it has one, and how many wait before it, up to 1,000.
select s.key, s.slots, exists (select 1 from windlass_serial_holders h where h.serial_key = s.id and h.job = ?2),
       case when exists (select 1 from windlass_serial_waiting l where l.serial_key = s.id and l.serial_position = ?3 and l.job = ?2)
            then (select count(*) from (select 1 from windlass_serial_waiting l where l.serial_key = ?1 and (l.serial_position, l.job) < (?3, ?2)
                                        limit 1000))
            else 0 end
from windlass_serial_keys s where s.id = ?1

-- name: serial_keys
-- Serial keys that are held or waited for, or the one named, with how many hold a slot and how many wait, up to 10,000.
select s.key, s.slots, (select count(*) from windlass_serial_holders h where h.serial_key = s.id),
       (select count(*) from (select 1 from windlass_serial_waiting l where l.serial_key = s.id limit 10000))
from windlass_serial_keys s
where case when ?1 is null
           then exists (select 1 from windlass_serial_holders h where h.serial_key = s.id) or exists (select 1 from windlass_serial_waiting l where l.serial_key = s.id)
           else s.key = ?1 end
order by s.key
limit ?2

-- name: workers
-- Workers, and how many claims each has.
select w.id, w.name, w.liveness_file, w.status, w.lease_until, (select count(*) from windlass_claims c where c.worker = w.id), w.serves
from windlass_workers w order by w.id
