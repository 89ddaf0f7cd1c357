-- Forgets large data of a machine, whose new data is in its row. Walks the primary key.
delete from windlass_payloads where job = ?1 and what = 4
