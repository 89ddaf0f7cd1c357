-- The branches of a job, by number. Walks the primary key.
select number, name, spawns, cursor_codec, cursor, sealed, merged_at, cut, spawned, started, done, failed, cancelled, watch,
       goal, opened_at, poll, poll_at
from windlass_branches where job = ?1 order by number
