-- Alerts. Writes and reads windlass_alerts and windlass_alert_mutes, which few rows are in.

-- fragment: alert
-- The columns of an alert, in the order of `alerts::Columns`.
rule, subject, severity, state, value, text, target, since, fired_at, clear_since, resolved_at, updated_at, posted, rev

-- name: add
-- Adds an alert, or replaces one that is not open and was written before; a pending one keeps when that fired and was resolved. Walks the primary key.
insert into windlass_alerts as a
    (rule, subject, severity, state, value, text, target, since, fired_at, clear_since, resolved_at, updated_at, posted, is_open, rev)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, 1)
on conflict (rule, subject) do update
set severity = excluded.severity, state = excluded.state, value = excluded.value, text = excluded.text, target = excluded.target,
    since = excluded.since, fired_at = coalesce(excluded.fired_at, a.fired_at), clear_since = excluded.clear_since,
    resolved_at = case when excluded.fired_at is null then a.resolved_at else excluded.resolved_at end,
    updated_at = excluded.updated_at, posted = excluded.posted, is_open = excluded.is_open, rev = a.rev + 1
where a.is_open = 0 and a.updated_at <= excluded.updated_at

-- name: change
-- Changes an alert, if its number is still ?15. Walks the primary key.
update windlass_alerts
set severity = ?3, state = ?4, value = ?5, text = ?6, target = ?7, since = ?8, fired_at = ?9, clear_since = ?10, resolved_at = ?11,
    updated_at = ?12, posted = ?13, is_open = ?14, rev = rev + 1
where rule = ?1 and subject = ?2 and rev = ?15

-- name: delete
-- Deletes an alert, if its number is still ?3. Walks the primary key.
delete from windlass_alerts where rule = ?1 and subject = ?2 and rev = ?3

-- name: open
-- Lists open alerts, at most ?1. Walks alerts_open.
select {{alert}} from windlass_alerts where is_open = 1 order by rule, subject limit ?1

-- name: resolved
-- Lists alerts that are not open, newest first, at most ?1. Walks alerts_closed backwards.
select {{alert}} from windlass_alerts where is_open = 0 order by updated_at desc limit ?1

-- name: prune
-- Deletes alerts that have not been open since ?1, at most ?2. Walks alerts_closed.
delete from windlass_alerts
where (rule, subject) in (select rule, subject from windlass_alerts where is_open = 0 and updated_at < ?1 order by updated_at limit ?2)

-- name: mute
-- Mutes a rule or a subject of it. Walks the primary key.
insert into windlass_alert_mutes (rule, subject, until_at, muted_at, author, note) values (?1, ?2, ?3, ?4, ?5, ?6)
on conflict (rule, subject) do update
set until_at = excluded.until_at, muted_at = excluded.muted_at, author = excluded.author, note = excluded.note

-- name: unmute
-- Ends a mute, and returns when it would have ended. Walks the primary key.
delete from windlass_alert_mutes where rule = ?1 and subject = ?2
returning until_at

-- name: mutes
-- Lists mutes that have not ended at ?1. Reads the whole table, which is short.
select rule, subject, until_at, muted_at, author, note from windlass_alert_mutes
where until_at is null or until_at > ?1
order by rule, subject

-- name: prune_mutes
-- Deletes mutes that ended before ?1, at most ?2. Reads the whole table, which is short.
delete from windlass_alert_mutes
where (rule, subject) in (select rule, subject from windlass_alert_mutes where until_at < ?1 order by rule, subject limit ?2)

-- name: latest_misses
-- Reads the newest record of missed ticks of each schedule that has another reason than ?1, among its newest ?2. Walks the primary key of
-- schedule_misses backwards, once per schedule.
select s.name, m.at, m.first, m.last, m.count, m.at_least, m.why
from windlass_schedules s
join windlass_schedule_misses m on m.schedule = s.id and m.at = (
    select max(n.at)
    from (select at, why from windlass_schedule_misses where schedule = s.id order by at desc limit ?2) n
    where n.why <> ?1
)
order by s.name
