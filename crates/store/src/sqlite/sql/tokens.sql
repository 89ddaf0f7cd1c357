-- Tokens. Writes and reads windlass_tokens, which few rows are in.

-- name: add
-- Adds a token, unless its id is taken, or there is a user or a token of its name. Walks the primary keys and the unique index of names.
insert into windlass_tokens (id, name, role, kinds, queues, hash, created_at, created_by, expires_at)
select ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9 where not exists (select 1 from windlass_users where name = ?2)
on conflict do nothing

-- name: revoke
-- Revokes the token with an id or a name, unless it is revoked, and returns its name. Walks the primary key and the unique index of names.
update windlass_tokens set revoked_at = ?2 where (id = ?1 or name = ?1) and revoked_at is null
returning name

-- name: exists
-- Reads whether there is a token with an id or a name. Walks the primary key and the unique index of names.
select 1 from windlass_tokens where id = ?1 or name = ?1

-- name: touch
-- Records at ?2 that a token was used, unless that was recorded since ?3. Walks the primary key.
update windlass_tokens set last_used_at = ?2 where id = ?1 and (last_used_at is null or last_used_at < ?3)

-- name: read
-- Reads a token. Walks the primary key.
select id, name, role, kinds, queues, hash, created_at, created_by, expires_at, revoked_at, last_used_at
from windlass_tokens where id = ?1

-- name: list
-- Lists all tokens. Walks the unique index of names.
select id, name, role, kinds, queues, hash, created_at, created_by, expires_at, revoked_at, last_used_at
from windlass_tokens order by name

-- name: registrant
-- Reads the token that a worker was registered with. Walks the primary key of workers.
select token from windlass_workers where id = ?1
