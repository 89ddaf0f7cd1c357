-- Users and their sessions. Writes and reads users and sessions, which few rows are in; locks the row of a user before those of its
-- sessions.

-- name: lock_names
-- Waits for other transactions that add users or tokens of this store ($1), until the end of the transaction: each looks for its name in the
-- other table. SQLite has one writer.
select pg_advisory_xact_lock(hashtextextended($1, 0))

-- name: add
-- Adds a user, unless there is a user or a token of its name. Walks the primary key and the unique index of the names of tokens.
insert into users (name, role, password_hash, created_at, created_by)
select $1::text, $2::text, $3::text, $4::int8, $5::text where not exists (select from tokens t where t.name = $1)
on conflict do nothing

-- name: read
-- Reads a user. Walks the primary key.
select name, role, password_hash, created_at, created_by, disabled_at, last_login_at
from users where name = $1::text

-- name: lock
-- The same, and locks the user: no session is added before the end of the transaction. Walks the primary key. SQLite reads it.
select name, role, password_hash, created_at, created_by, disabled_at, last_login_at
from users where name = $1::text for update

-- name: list
-- Lists all users. Reads the whole table, which is small.
select name, role, password_hash, created_at, created_by, disabled_at, last_login_at
from users order by name collate "C"

-- name: write
-- Writes what people change of a user. Walks the primary key.
update users set role = $2::text, password_hash = $3::text, disabled_at = $4::int8 where name = $1::text

-- name: add_session
-- Records at $1 that the user $3 has logged in, unless the user is disabled or its password hash is not $4, and adds a session that lasts
-- for $5. It waits for a transaction that has locked the user, and then judges what that has written. Walks the primary keys. SQLite does
-- the two by two statements.
with {{common.clock}},
logged_in as (
    update users u set last_login_at = c.now from clock c
    where u.name = $3::text and u.password_hash = $4::text and u.disabled_at is null
    returning u.name
)
insert into sessions (hash, user_name, created_at, expires_at)
select $2::bytea, l.name, c.now, c.now + $5::int8 from logged_in l, clock c
on conflict do nothing

-- name: read_session
-- Reads a session with the role that its user has now. Walks both primary keys.
select u.name, u.role, u.disabled_at is not null, s.created_at, s.expires_at, s.last_used_at
from sessions s join users u on u.name = s.user_name where s.hash = $1::bytea

-- name: touch_session
-- Records at $1 that the session $2 was used, unless it has expired or that was recorded since $3, and lengthens it to $4 from now, but at
-- most $5 from its beginning. Walks the primary key.
with {{common.clock}}
update sessions s
set last_used_at = c.now, expires_at = greatest(s.expires_at, least(c.now + $4::int8, s.created_at + $5::int8))
from clock c
where s.hash = $2::bytea and s.expires_at > c.now and (s.last_used_at is null or s.last_used_at < $3::int8)

-- name: end_session
-- Deletes a session. Walks the primary key.
delete from sessions where hash = $1::bytea

-- name: end_sessions
-- Deletes the sessions of a user, who is locked. Walks sessions_user.
delete from sessions where user_name = $1::text

-- name: prune_sessions
-- Deletes sessions that have expired at $1, at most $2. Skips those that another process is deleting. Walks sessions_expires.
with {{common.clock}}
delete from sessions where hash = any (array(
    select s.hash from sessions s where s.expires_at <= (select now from clock)
    order by s.expires_at, s.hash limit $2::int8 for update skip locked
))
