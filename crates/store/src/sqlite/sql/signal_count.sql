-- How many signals wait in an inbox, and how many were set aside. Walks the primary key.
select count(*) - count(aside), count(aside) from windlass_signals where job = ?1
