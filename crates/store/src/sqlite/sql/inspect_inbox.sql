-- The signals in an inbox, oldest first. Walks the primary key.
select number, name, at, codec, payload, aside from windlass_signals where job = ?1 order by number limit ?2
