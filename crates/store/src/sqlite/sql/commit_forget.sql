-- Forgets an entry of a journal that later ones have made needless. Walks the primary key.
delete from windlass_journal where job = ?1 and seq = ?2
