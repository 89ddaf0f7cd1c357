-- Sets jobs aside that are due and held.
update jobs set hold = 2 where id = any($1::uuid[])
