-- A signal in an inbox: its name, and whether it was set aside. Walks the primary key.
select name, aside is not null from signals where job = $1 and number = $2
