-- Sets a signal aside that an attempt could not read. Walks the primary key.
update windlass_signals set aside = ?3 where job = ?1 and number = ?2 and aside is null
