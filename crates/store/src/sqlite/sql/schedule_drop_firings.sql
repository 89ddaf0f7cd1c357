-- Forgets what a schedule fired.
delete from windlass_firings where schedule = ?1
