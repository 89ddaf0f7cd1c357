-- Queues from which nothing is claimed, not even by whoever submits. There are few queues.
select id from windlass_queues where paused_at is not null
