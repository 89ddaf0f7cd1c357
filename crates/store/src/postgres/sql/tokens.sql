-- Tokens. Writes and reads tokens, which few rows are in; locks one row at a time.

-- name: add
-- Adds a token, unless its id is taken, or there is a user or a token of its name. Walks the primary keys and the unique index of names.
insert into tokens (id, name, role, kinds, queues, hash, created_at, created_by, expires_at)
select $1::text, $2::text, $3::text, $4::text, $5::text, $6::bytea, $7::int8, $8::text, $9::int8
where not exists (select from users u where u.name = $2)
on conflict do nothing

-- name: revoke
-- Revokes the token with an id or a name, unless it is revoked, and returns its name. Reads the whole table, which is small.
update tokens set revoked_at = $2::int8 where (id = $1::text or name = $1) and revoked_at is null
returning name

-- name: exists
-- Reads whether there is a token with an id or a name. Reads the whole table, which is small.
select 1 from tokens where id = $1::text or name = $1

-- name: touch
-- Records at $1 that the token $2 was used, unless that was recorded since $3. Walks the primary key.
update tokens set last_used_at = {{common.now}}
where id = $2::text and (last_used_at is null or last_used_at < $3::int8)

-- name: read
-- Reads a token. Walks the primary key.
select id, name, role, kinds, queues, hash, created_at, created_by, expires_at, revoked_at, last_used_at
from tokens where id = $1::text

-- name: list
-- Lists all tokens. Walks the unique index of names.
select id, name, role, kinds, queues, hash, created_at, created_by, expires_at, revoked_at, last_used_at
from tokens order by name collate "C"

-- name: registrant
-- Reads the token that a worker was registered with. Walks the primary key of workers.
select token from workers where id = $1::int8
