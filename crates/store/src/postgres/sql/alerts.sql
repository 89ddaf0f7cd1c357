-- Alerts. Writes and reads alerts and alert_mutes, which few rows are in; locks one row at a time, in the order of the changes.

-- fragment: alert
-- The columns of an alert, in the order of `alerts::Columns`.
rule, subject, severity, state, value, text, target, since, fired_at, clear_since, resolved_at, updated_at, posted, rev

-- name: add
-- Adds an alert, or replaces one that is not open and was written before; a pending one keeps when that fired and was resolved. Walks the primary key.
insert into alerts as a
    (rule, subject, severity, state, value, text, target, since, fired_at, clear_since, resolved_at, updated_at, posted, is_open, rev)
values ($1::text, $2::text, $3::int2, $4::int2, $5::text, $6::text, $7::text, $8::int8, $9::int8, $10::int8, $11::int8, $12::int8, $13::bool,
        $14::bool, 1)
on conflict (rule, subject) do update
set severity = excluded.severity, state = excluded.state, value = excluded.value, text = excluded.text, target = excluded.target,
    since = excluded.since, fired_at = coalesce(excluded.fired_at, a.fired_at), clear_since = excluded.clear_since,
    resolved_at = case when excluded.fired_at is null then a.resolved_at else excluded.resolved_at end,
    updated_at = excluded.updated_at, posted = excluded.posted, is_open = excluded.is_open, rev = a.rev + 1
where not a.is_open and a.updated_at <= excluded.updated_at

-- name: change
-- Changes an alert, if its number is still $15. Walks the primary key.
update alerts
set severity = $3::int2, state = $4::int2, value = $5::text, text = $6::text, target = $7::text, since = $8::int8, fired_at = $9::int8,
    clear_since = $10::int8, resolved_at = $11::int8, updated_at = $12::int8, posted = $13::bool, is_open = $14::bool, rev = rev + 1
where rule = $1::text and subject = $2::text and rev = $15::int8

-- name: delete
-- Deletes an alert, if its number is still $3. Walks the primary key.
delete from alerts where rule = $1::text and subject = $2::text and rev = $3::int8

-- name: open
-- Lists open alerts, at most $1. Walks alerts_open.
select {{alert}} from alerts where is_open order by rule collate "C", subject collate "C" limit $1::int8

-- name: resolved
-- Lists alerts that are not open, newest first, at most $1. Walks alerts_closed backwards.
select {{alert}} from alerts where not is_open order by updated_at desc limit $1::int8

-- name: prune
-- Deletes alerts that have not been open since $1, at most $2. Walks alerts_closed.
delete from alerts
where (rule, subject) in (
    select rule, subject from alerts where not is_open and updated_at < $1::int8 order by updated_at limit $2::int8 for update
)

-- name: mute
-- Mutes a rule or a subject of it. Walks the primary key.
insert into alert_mutes (rule, subject, until_at, muted_at, author, note)
values ($1::text, $2::text, $3::int8, $4::int8, $5::text, $6::text)
on conflict (rule, subject) do update
set until_at = excluded.until_at, muted_at = excluded.muted_at, author = excluded.author, note = excluded.note

-- name: unmute
-- Ends a mute, and returns when it would have ended. Walks the primary key.
delete from alert_mutes where rule = $1::text and subject = $2::text
returning until_at

-- name: mutes
-- Lists mutes that have not ended at $1. Reads the whole table, which is short.
select rule, subject, until_at, muted_at, author, note from alert_mutes
where until_at is null or until_at > {{common.now}}
order by rule collate "C", subject collate "C"

-- name: prune_mutes
-- Deletes mutes that ended before $1, at most $2. Reads the whole table, which is short.
delete from alert_mutes
where (rule, subject) in (
    select rule, subject from alert_mutes where until_at < $1::int8 order by rule, subject limit $2::int8 for update
)

-- name: latest_misses
-- Reads the newest record of missed ticks of each schedule that has another reason than $1, among its newest $2. Walks the primary key of
-- schedule_misses backwards, once per schedule.
select s.name, m.at, m.first, m.last, m.count, m.at_least, m.why
from schedules s
cross join lateral (
    select n.* from (select * from schedule_misses where schedule = s.id order by at desc limit $2::int8) n
    where n.why <> $1::text order by n.at desc limit 1
) m
order by s.name collate "C"
