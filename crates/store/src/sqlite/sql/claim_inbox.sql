-- The signals of a name in an inbox, but those that were set aside, oldest first. Walks the primary key.
select number, name, at, codec, payload from windlass_signals
where job = ?1 and name = ?2 and aside is null order by number
