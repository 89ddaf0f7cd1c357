-- A number for a queue.
insert into queues (name) values (?1) on conflict do nothing
