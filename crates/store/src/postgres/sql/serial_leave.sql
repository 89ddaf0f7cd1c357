-- Takes jobs out of their key's slots and line that have ended, were set aside, or are parked or wait for another attempt
-- without keeping their slot. Harmless for all others. Needs serial_lock before.
with who as materialized (
    select j.id, j.serial, j.place,
           j.state <> 0 or coalesce(j.hold, 0) = 2 as out,
           not coalesce(j.keeps, false)
           and case when j.parked is not null then j.parked = 1
               else exists (select from timers t where t.due_at = j.due_at and t.job = j.id and t.what = 0) end as waits
    from jobs j where j.id = any($1::uuid[]) and j.serial is not null
), unlined as (
    delete from line l using who w where w.out and l.serial = w.serial and l.place = w.place and l.job = w.id
)
delete from holders h using who w where (w.out or w.waits) and h.serial = w.serial and h.job = w.id
