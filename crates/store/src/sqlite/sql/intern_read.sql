-- All lanes with their names.
select l.id, l.queue, l.kind, q.name, k.name, l.version, l.bucket
from lanes l join queues q on q.id = l.queue join kinds k on k.id = l.kind
