-- Notes what a schedule fired: a tick fires once.
insert into windlass_firings (schedule, tick, job) values (?1, ?2, ?3) on conflict do nothing
