-- Takes a worker on, unless the name is taken.
insert into windlass_workers (id, name, beacon, lease_until, serves) values (?1, ?2, ?3, ?4, ?5) on conflict do nothing
