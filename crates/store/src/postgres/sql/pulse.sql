-- Inspect::pulse: whether anything may have changed that people see. Reads only, and locks nothing.

-- name: pulse
-- Reads numbers of which one changes with whatever people see, and where some jobs are: a row for each of the ids $2, or one row. $1 is the time, or null for
-- the server's clock, $3 the span by which a job's priority moves its rank. Reads the whole of gates, job_counts, workers, claims and schedules,
-- which are short; walks the primary keys of arrivals, audit_log and jobs from their ends, operations_running, and for the jobs primary keys
-- (`offset 0` keeps it from walking all jobs instead).
select d.*, i.n, j.*
from (
    select (select coalesce(sum(version), 0)::int8 from gates) as gates,
           (select coalesce(max(seq), 0) from arrivals) as arrivals,
           k.live, k.ended, c.claims, c.claim_numbers, w.workers, w.alive,
           (select coalesce(sum(next_at / 1000), 0)::int8 from schedules) as schedules,
           (select coalesce(max(number), 0) from audit_log) as audit,
           (select coalesce(sum(updated_at / 1000), 0)::int8 from operations where ended_at is null) as operations,
           (select id from jobs order by id desc limit 1) as newest_job
    from (select coalesce(sum(live + 1000003 * scheduled + 1000000007 * waiting), 0)::int8 as live,
                 coalesce(sum(done + 1000003 * failed + 1000000007 * cancelled), 0)::int8 as ended from job_counts) k,
         (select count(*) as claims, coalesce(sum(number % 1000003), 0)::int8 as claim_numbers from claims) c,
         (select coalesce(sum(1 + 1000003 * status), 0)::int8 as workers,
                 count(*) filter (where status = 0 and lease_until > {{common.now}}) as alive from workers) w
) d
left join unnest($2::uuid[]) with ordinality as i (id, n) on true
left join lateral (
    select j.rev, j.epoch, j.state, {{common.is_ready($3)}} as is_ready, {{common.in_timers}} as is_scheduled, {{common.is_parked}} as is_parked,
           (select coalesce(max(s.number), 0) from signals s where s.job = j.id) as newest_signal
    from jobs j where j.id = i.id offset 0
) j on true
