-- All queues with their names.
select id, name from queues
