-- Takes a job back that this transaction has put in, because its unique name is taken.
with gone as (
    delete from jobs where id = $1::uuid returning id, due_at, deadline_at, tags
), untagged as (
    delete from tags t using gone g
    where g.tags is not null and t.job = g.id and t.tag in (select jsonb_array_elements_text(g.tags::jsonb))
)
delete from timers t using gone g
where t.job = g.id and ((t.due_at = g.due_at and t.what = 0) or (t.due_at = g.deadline_at and t.what = 1))
