-- Who paused a queue.
select paused_by from windlass_queues where name = ?1 and paused_at is not null
