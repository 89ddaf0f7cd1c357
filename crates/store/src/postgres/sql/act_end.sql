-- Ends live jobs as cancelled: whoever runs one is fenced. Their timers and whatever held them are forgotten; passes
-- over timers that are firing, which will find nothing to do. Answers those that are children or have
-- branches: which their parents' waits count, which have branches, and for which branches which end.
with wrote as (
    update jobs j
    set state = 3, trouble = 3, epoch = j.epoch + 1, failure = x.failure, finished_at = $3::int8, hold = null,
        parked = null
    from unnest($1::uuid[], $2::text[]) as x (id, failure)
    where j.id = x.id and j.state = 0
    returning j.id, j.due_at, j.deadline_at, j.round, j.parent, j.branch, j.items, j.tallied, j.rev, j.branched
), unpaused as (
    delete from pauses p using wrote w where p.job = w.id
), untold as (
    delete from orders o using wrote w where o.job = w.id returning o.job, o.deadline_at
), timed as materialized (
    select w.due_at, w.id, 0 as what from wrote w
    union all select w.deadline_at, w.id, 1 from wrote w where w.deadline_at is not null
    union all select o.deadline_at, o.job, 2 from untold o
), untimed as (
    delete from timers where ctid = any (array(
        select t.ctid from timed d join timers t on t.due_at = d.due_at and t.job = d.id and t.what = d.what
        for update of t skip locked
    ))
)
select id, round is not null, coalesce(branched, false), case when branch is not null then parent end, branch,
       coalesce(items, 1) - coalesce(tallied, 0), rev
from wrote where round is not null or branch is not null or branched
