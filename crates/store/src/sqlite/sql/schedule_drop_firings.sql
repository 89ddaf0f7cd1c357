-- Forgets what a schedule fired.
delete from firings where schedule = ?1
