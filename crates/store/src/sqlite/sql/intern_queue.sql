-- A number for a queue.
insert into windlass_queues (name) values (?1) on conflict do nothing
