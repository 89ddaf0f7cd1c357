-- Puts a signal into an inbox, behind the others.
insert into windlass_signals (job, number, name, at, codec, payload) values (?1, ?2, ?3, ?4, ?5, ?6)
