-- Counts the ends ($2 is -1) or revivals (1) of children for the waits of their parents, all of one parent at once. A child
-- counts only while its parent is in the stage that waits for it. Walks the primary key of jobs; locks parents by id.
-- Answers the parents: those that have what they wait for are woken by signal_wake.
with counts as materialized (
    select c.parent, c.round, count(*)::int4 as n from jobs c
    where c.id = any($1::uuid[]) and c.round is not null
    group by c.parent, c.round
), parents as materialized (
    select p.id from jobs p where p.id = any (array(select parent from counts)) order by p.id for no key update
)
update jobs j set pending = j.pending + $2::int4 * k.n from parents p join counts k on k.parent = p.id
where j.id = p.id and j.since = k.round
returning j.id
