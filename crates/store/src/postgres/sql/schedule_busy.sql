-- Which of some jobs have not ended.
select id from jobs where id = any($1::uuid[]) and state = 0
