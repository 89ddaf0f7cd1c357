-- Notes that a signal was delivered, unless it was before.
insert into windlass_heard (job, name, dedup) values (?1, ?2, ?3) on conflict do nothing
