-- Forgets that a job took a unique name.
delete from windlass_scopes where kind = ?1 and key = ?2 and job = ?3
