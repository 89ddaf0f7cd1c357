-- Records of operations: writes and reads windlass_operations, which few rows are in.

-- name: add
-- Adds the record of an operation that begins, unless its id exists. Walks the primary key.
insert into windlass_operations (id, action, filter, parameters, author, note, started_at, updated_at, state, progress)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, ?8, ?9)
on conflict do nothing

-- name: update
-- Writes how far an operation is, and its state, end and error, unless it has ended. Walks the primary key.
update windlass_operations
set updated_at = ?2, progress = ?3, state = ?4, ended_at = case when ?4 <> 0 then ?2 end, error = ?5
where id = ?1 and ended_at is null

-- name: stop_requested
-- Reads whether an operation was requested to stop, its state, and whether it has ended. Walks the primary key.
select stop_requested, state, ended_at is not null from windlass_operations where id = ?1

-- name: request_stop
-- Requests an operation to stop. Walks the primary key.
update windlass_operations set stop_requested = 1 where id = ?1

-- fragment: operation
-- The columns of a record; read by `columns`.
id, action, filter, parameters, author, note, started_at, updated_at, ended_at, state, progress, stop_requested, error

-- name: read
-- Reads a record. Walks the primary key.
select {{operation}} from windlass_operations where id = ?1

-- name: list
-- Lists the newest records before ?1, at most ?2. Walks the primary key backwards.
select {{operation}} from windlass_operations where id < coalesce(?1, x'ffffffffffffffffffffffffffffffffff') order by id desc limit ?2

-- name: prune
-- Deletes records that were last written before ?1. Reads the whole table, which is short.
delete from windlass_operations where updated_at < ?1
