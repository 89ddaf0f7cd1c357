-- Deletes the whole store.
drop function submit;
drop table signal_waits, wait_batches, branch_times, ended_sums, ended_batches;
drop table alert_mutes, alerts, operations, sessions, users, tokens, branch_counts, branches, context, journal, transitions, delivered_signals, signals, schedule_misses, schedule_firings,
    schedules, arrivals, audit_log, cancel_requests, paused_jobs, unique_names, serial_waiting, serial_holders, serial_keys,
    rate_limits, job_counts, gates, attempts, claims, workers, timers, ready, tags, parked_jobs, lane_periods, jobs, lanes, kinds, queues, meta;
drop function moment;
