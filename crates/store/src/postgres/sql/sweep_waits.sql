-- Parked jobs that seem to have what they wait for, a bounded number: of the newest thousand with signals, and of the
-- newest thousand that have children. Walks the primary key of signals from inbox to inbox, and jobs_parent from parent
-- to parent, both backwards. Whether they have it is for signal_wake to say.
with recursive inboxes as (
    (select job, 1 as n from signals order by job desc limit 1)
    union all
    select s.job, i.n + 1 from inboxes i
    cross join lateral (select job from signals where signals.job < i.job order by job desc limit 1) s
    where i.n < 1000
), parents as (
    (select parent, 1 as n from jobs where parent is not null and branch is null order by parent desc limit 1)
    union all
    select c.parent, p.n + 1 from parents p
    cross join lateral (
        select j.parent from jobs j where j.parent < p.parent and j.parent is not null and j.branch is null order by j.parent desc limit 1
    ) c
    where p.n < 1000
)
select j.id from jobs j
where j.id = any (array(select job from inboxes)) and j.parked = 1 and j.state = 0
  and (select count(distinct s.name) from signals s
                where s.job = j.id and s.name = any(j.waits) and s.aside is null) >= j.needs
union all
select j.id from jobs j
where j.id = any (array(select parent from parents)) and j.parked = 1 and j.state = 0 and j.waits is null and j.pending <= 0
