-- Inspect::pulse: whether anything may have changed that people see. Reads only.

-- name: pulse
-- Reads numbers of which one changes with whatever people see, and where some jobs are: a row for each of the ids ?2 (a JSON array of their
-- hexadecimal digits), or one row. ?1 is the time, ?3 the span by which a job's priority moves its rank. Reads the whole of gates, job_counts,
-- workers, claims and schedules, which are short; walks the primary keys of arrivals, audit_log and jobs from their ends, operations_running, and for
-- the jobs primary keys.
select d.gates, d.arrivals, d.live, d.ended, d.claims, d.claim_numbers, d.workers, d.alive, d.schedules, d.audit, d.operations, d.newest_job,
       i.key, j.rev, j.epoch, j.state, coalesce(j.hold, 0) = 2 or {{common.in_ready(?3)}} or {{common.in_serial_waiting}}, {{common.in_timers}},
       j.parked is not null, (select coalesce(max(s.number), 0) from windlass_signals s where s.job = j.id)
from (
    select (select coalesce(sum(version), 0) from windlass_gates) as gates,
           (select coalesce(max(seq), 0) from windlass_arrivals) as arrivals,
           (select coalesce(sum(live + 1000003 * scheduled + 1000000007 * waiting), 0) from windlass_job_counts) as live,
           (select coalesce(sum(done + 1000003 * failed + 1000000007 * cancelled), 0) from windlass_job_counts) as ended,
           c.claims, c.claim_numbers, w.workers, w.alive,
           (select coalesce(sum(next_at / 1000), 0) from windlass_schedules) as schedules,
           (select coalesce(max(number), 0) from windlass_audit_log) as audit,
           (select coalesce(sum(updated_at / 1000), 0) from windlass_operations where ended_at is null) as operations,
           (select max(id) from windlass_jobs) as newest_job
    from (select count(*) as claims, coalesce(sum(number % 1000003), 0) as claim_numbers from windlass_claims) c,
         (select coalesce(sum(1 + 1000003 * status), 0) as workers, coalesce(sum(status = 0 and lease_until > ?1), 0) as alive
          from windlass_workers) w
) d
left join json_each(?2) i
left join windlass_jobs j on j.id = unhex(i.value)
