-- All lanes with their names.
select l.id, l.queue, l.kind, q.name, k.name, l.version, l.bucket
from windlass_lanes l join windlass_queues q on q.id = l.queue join windlass_kinds k on k.id = l.kind
