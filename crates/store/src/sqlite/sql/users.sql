-- Users and their sessions. Writes and reads windlass_users and windlass_sessions, which few rows are in.

-- name: add
-- Adds a user, unless there is a user or a token of its name. Walks the primary key and the unique index of the names of tokens.
insert into windlass_users (name, role, password_hash, created_at, created_by)
select ?1, ?2, ?3, ?4, ?5 where not exists (select 1 from windlass_tokens where name = ?1)
on conflict do nothing

-- name: read
-- Reads a user. Walks the primary key.
select name, role, password_hash, created_at, created_by, disabled_at, last_login_at
from windlass_users where name = ?1

-- name: list
-- Lists all users. Walks the primary key.
select name, role, password_hash, created_at, created_by, disabled_at, last_login_at
from windlass_users order by name

-- name: write
-- Writes what people change of a user. Walks the primary key.
update windlass_users set role = ?2, password_hash = ?3, disabled_at = ?4 where name = ?1

-- name: log_in
-- Records at ?2 that a user has logged in, unless the user is disabled or its password hash is not ?3. Walks the primary key.
update windlass_users set last_login_at = ?2 where name = ?1 and password_hash = ?3 and disabled_at is null

-- name: add_session
-- Adds a session. Walks the primary key.
insert into windlass_sessions (hash, user_name, created_at, expires_at) values (?1, ?2, ?3, ?4)
on conflict do nothing

-- name: read_session
-- Reads a session with the role that its user has now. Walks both primary keys.
select u.name, u.role, u.disabled_at is not null, s.created_at, s.expires_at, s.last_used_at
from windlass_sessions s join windlass_users u on u.name = s.user_name where s.hash = ?1

-- name: touch_session
-- Records at ?2 that a session was used, unless it has expired or that was recorded since ?3, and lengthens it to ?4 from now, but at most
-- ?5 from its beginning. Walks the primary key.
update windlass_sessions set last_used_at = ?2, expires_at = max(expires_at, min(?2 + ?4, created_at + ?5))
where hash = ?1 and expires_at > ?2 and (last_used_at is null or last_used_at < ?3)

-- name: end_session
-- Deletes a session. Walks the primary key.
delete from windlass_sessions where hash = ?1

-- name: end_sessions
-- Deletes the sessions of a user. Walks windlass_sessions_user.
delete from windlass_sessions where user_name = ?1

-- name: prune_sessions
-- Deletes sessions that have expired at ?1, at most ?2. Walks windlass_sessions_expires.
delete from windlass_sessions where hash in (
    select hash from windlass_sessions where expires_at <= ?1 order by expires_at, hash limit ?2
)
