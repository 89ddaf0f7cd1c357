-- Execution::submit, and all that submits jobs within another verb. Writes jobs, tags and payloads, and ready, timers or claims as the job
-- is due. PostgreSQL inserts a batch by one statement.

-- name: insert
-- Inserts a job, unless its id or its key exists. Walks the primary key and, with a key, jobs_key.
insert into windlass_jobs (id, lane, kind, priority, submitted_at, due_at, deadline_at, digest, codec, input, key, tags,
                  options, settings, parent, serial_key, serial_position, rate_weight, keeps_slot, external_payloads, stage, parent_rev,
                  branch, spawn, item, item_count)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25,
        ?26)
on conflict do nothing

-- name: make_ready
-- Adds a job to the ready set.
insert into windlass_ready (lane, rank, job) values (?1, ?2, ?3)

-- name: add_tag
-- Adds a tag of a job.
insert into windlass_tags (tag, job) values (?1, ?2) on conflict do nothing

-- name: add_period
-- Notes that jobs of a lane are inserted in a period. Walks the primary key.
insert into windlass_lane_periods (lane, period) values (?1, ?2) on conflict do nothing

-- name: add_payload
-- Writes a payload that is too large for its job's row. PostgreSQL stores large values apart by itself. Walks the primary key.
insert into windlass_payloads (job, part, bytes) values (?1, ?2, ?3)
on conflict (job, part) do update set bytes = ?3

-- name: paused_queues
-- Lists paused queues, from which nothing is claimed, not even by the worker that submits. Reads the whole table, which is short.
select id from windlass_queues where paused_at is not null

-- name: find_by_id
-- Reads the digest of a job that has the id of one that was not inserted. Walks the primary key.
select digest from windlass_jobs where id = ?1

-- name: find_by_key
-- Reads the job that has the kind and key of one that was not inserted. Walks jobs_key.
select id, digest from windlass_jobs where kind = ?1 and key = ?2
