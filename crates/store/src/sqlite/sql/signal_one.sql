-- A signal in an inbox: its name, and whether it was set aside. Walks the primary key.
select name, aside is not null from windlass_signals where job = ?1 and number = ?2
