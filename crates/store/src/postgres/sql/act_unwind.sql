-- Has live jobs unwound before they end: whoever runs one is fenced, what counts attempts starts anew, and the job waits
-- for nothing. Their timers and whatever held them are forgotten (timers that are firing are passed over, and find nothing
-- to do), and they give up the slot or the place in line of their serial key. The jobs are locked and in no ready set;
-- they enter by serial_enter. Walks the primary key of jobs. Needs serial_lock before.
with old as materialized (
    select j.id, j.due_at, j.deadline_at, j.serial, j.place from jobs j where j.id = any($1::uuid[]) and j.state = 0
), wrote as (
    update jobs j
    set unwind = x.unwind, undo = false, epoch = j.epoch + 1, due_at = $3::int8, attempts = 0, deaths = 0, crashes = 0,
        suspect = false, spent = null, wait = null, waits = null, needs = null, until = null, parked = 0, hold = null
    from unnest($1::uuid[], $2::text[]) as x (id, unwind)
    where j.id = x.id and j.state = 0
), unpaused as (
    delete from pauses p using old o where p.job = o.id
), untold as (
    delete from orders r using old o where r.job = o.id returning r.job, r.deadline_at
), timed as materialized (
    select o.due_at, o.id, 0 as what from old o
    union all select o.deadline_at, o.id, 1 from old o where o.deadline_at is not null
    union all select r.deadline_at, r.job, 2 from untold r
), untimed as (
    delete from timers where ctid = any (array(
        select t.ctid from timed d join timers t on t.due_at = d.due_at and t.job = d.id and t.what = d.what
        for update of t skip locked
    ))
), unlined as (
    delete from line l using old o where l.serial = o.serial and l.place = o.place and l.job = o.id
)
delete from holders h using old o where h.serial = o.serial and h.job = o.id
