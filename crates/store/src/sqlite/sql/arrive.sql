-- Appends a job that is submitted in a transaction of the caller's.
insert into windlass_arrivals (id, kind, version, queue, key, priority, at, delay, deadline_at, parent, tags, options, settings,
                      codec, input, digest, stage)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)
