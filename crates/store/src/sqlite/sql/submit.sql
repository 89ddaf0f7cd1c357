-- Puts one job in, unless its id or its key is there. Walks the primary key and, with a key, jobs_key.
-- PostgreSQL takes a whole batch in one statement.
insert into windlass_jobs (id, lane, kind, priority, submitted_at, due_at, deadline_at, digest, codec, input, key, tags,
                  options, settings, parent, serial, place, weight, keeps, far, stage, round, branch, spawn, item, items)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25,
        ?26)
on conflict do nothing
