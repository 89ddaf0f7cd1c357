-- Records of operations: writes and reads operations, which few rows are in. Locks the row that it writes.

-- name: add
-- Adds the record of an operation that begins, unless its id exists. Walks the primary key.
insert into operations (id, action, filter, parameters, author, note, started_at, updated_at, state, progress)
select $2::uuid, $3::text, $4::text, $5::text, $6::text, $7::text, clock.at, clock.at, $8::int2, $9::text from (select {{common.now}} as at) clock
on conflict do nothing

-- name: update
-- Writes how far an operation is, and its state, end and error, unless it has ended. Walks the primary key.
update operations o
set updated_at = clock.at, progress = $3::text, state = $4::int2, ended_at = case when $4 <> 0 then clock.at end, error = $5::text
from (select {{common.now}} as at) clock
where o.id = $2::uuid and o.ended_at is null

-- name: stop_requested
-- Reads whether an operation was requested to stop, its state, and whether it has ended, and locks it. Walks the primary key.
select stop_requested, state, ended_at is not null from operations where id = $1::uuid for update

-- name: request_stop
-- Requests an operation to stop. Walks the primary key.
update operations set stop_requested = true where id = $1::uuid

-- fragment: operation
-- The columns of a record, and the time of the statement; read by `columns`.
id, action, filter, parameters, author, note, started_at, updated_at, ended_at, state, progress, stop_requested, error, {{common.now}}

-- name: read
-- Reads a record. Walks the primary key.
select {{operation}} from operations where id = $2::uuid

-- name: list
-- Lists the newest records before $2, at most $3. Walks the primary key backwards.
select {{operation}} from operations
where id < coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
order by id desc
limit $3::int8

-- name: prune
-- Deletes records that were last written before $1. Reads the whole table, which is short.
delete from operations where updated_at < $1::int8
