-- A workflow's journal, by place, as one row of columns. Walks the primary key.
select array_agg(seq), array_agg(op), array_agg(mark), array_agg(name), array_agg(key), array_agg(line), array_agg(at),
       array_agg(codec), array_agg(payload)
from (
    select seq, op, mark, name, key, line, at, codec, payload from journal
    where job = $1 and seq > $2 order by seq limit $3
) e
