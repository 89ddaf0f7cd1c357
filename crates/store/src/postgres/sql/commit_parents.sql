-- Counts the ends ($2 is -1) or revivals (1) of children for the waits of their parents, all of one parent at once. A child
-- counts only while its parent is in the stage that waits for it. Of the end of a child whose round is -1, its parent is
-- told by a signal, if it had not ended before ($4 are children whose parents ended after them, in the same transaction), however
-- full its inbox is. Walks the primary key of jobs; locks parents by id.
-- Answers the parents: those that have what they wait for are woken by signal_wake.
with ended as materialized (
    select c.id, c.parent, c.round, x.place from unnest($1::uuid[]) with ordinality as x (id, place)
    join jobs c on c.id = x.id and c.round is not null
), counts as materialized (
    select parent, round, count(*)::int4 as n from ended where round >= 0 group by parent, round
), parents as materialized (
    select p.id, p.state from jobs p where p.id = any (array(select parent from ended)) order by p.id for no key update
), told as (
    insert into signals (job, name, at, codec, payload)
    select p.id, 'windlass.child', coalesce($3::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8), 0,
           convert_to('"' || e.id || '"', 'UTF8')
    from ended e join parents p on p.id = e.parent
    where e.round = -1 and (p.state = 0 or e.id = any($4::uuid[])) and $2::int4 = -1
    order by e.place
    returning job
), counted as (
    update jobs j set pending = j.pending + $2 * k.n from parents p join counts k on k.parent = p.id
    where j.id = p.id and j.since = k.round
    returning j.id
)
select id from counted union select job from told
