-- Puts a signal back that was set aside, where it stood. Walks the primary key.
update windlass_signals set aside = null where job = ?1 and number = ?2
