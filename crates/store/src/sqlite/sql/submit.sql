-- name: insert
-- Puts one job in, unless its id or its key is there. Walks the primary key and, with a key, jobs_key.
-- PostgreSQL takes a whole batch in one statement.
insert into windlass_jobs (id, lane, kind, priority, submitted_at, due_at, deadline_at, digest, codec, input, key, tags,
                  options, settings, parent, serial_key, serial_position, rate_weight, keeps_slot, external_payloads, stage, parent_rev, branch, spawn, item, item_count)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25,
        ?26)
on conflict do nothing

-- name: by_id
-- The digest of a job that was in the way of a submit, by its id.
select digest from windlass_jobs where id = ?1

-- name: by_key
-- The job that was in the way of a submit, by kind and key. Walks jobs_key.
select id, digest from windlass_jobs where kind = ?1 and key = ?2

-- name: paused_queues
-- Queues from which nothing is claimed, not even by whoever submits. There are few queues.
select id from windlass_queues where paused_at is not null

-- name: add_payload
-- Keeps a payload that is too large for its job's row. PostgreSQL does that by itself.
insert into windlass_payloads (job, part, bytes) values (?1, ?2, ?3)
on conflict (job, part) do update set bytes = ?3

-- name: make_ready
-- Puts a job into the ready set. PostgreSQL does it within submit.
insert into windlass_ready (lane, rank, job) values (?1, ?2, ?3)

-- name: add_tag
-- Notes one tag of a job. PostgreSQL does it for the batch.
insert into windlass_tags (tag, job) values (?1, ?2) on conflict do nothing
