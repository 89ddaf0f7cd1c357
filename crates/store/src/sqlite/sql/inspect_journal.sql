-- The entries of a journal after a place, in order; whoever reads them stops in time (a limit that is bound has the
-- statement planned anew each time). Walks the primary key.
select seq, op, mark, name, key, line, at, codec, payload from windlass_journal where job = ?1 and seq > ?2 order by seq
