-- The journals of some workflows, each as one row of columns, by place. Walks the primary key.
select a.*, i.id
from unnest($1::uuid[]) as i (id)
cross join lateral (
    select array_agg(seq), array_agg(op), array_agg(mark), array_agg(name), array_agg(key), array_agg(line),
           array_agg(at), array_agg(codec), array_agg(payload)
    from (
        select seq, op, mark, name, key, line, at, codec, payload from journal where job = i.id order by seq
    ) e
) a
