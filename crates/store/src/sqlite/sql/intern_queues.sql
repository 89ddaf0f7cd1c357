-- All queues with their names.
select id, name from windlass_queues
