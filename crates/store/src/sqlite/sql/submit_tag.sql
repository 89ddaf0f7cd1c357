-- Notes one tag of a job. PostgreSQL does it for the batch.
insert into windlass_tags (tag, job) values (?1, ?2) on conflict do nothing
