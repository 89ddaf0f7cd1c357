-- The oldest signal of a name in an inbox that was not set aside. A statement of its own: one with a limit that is bound is planned anew each
-- time. Walks the primary key.
select number, name, at, codec, payload from windlass_signals
where job = ?1 and name = ?2 and aside is null order by number limit 1
