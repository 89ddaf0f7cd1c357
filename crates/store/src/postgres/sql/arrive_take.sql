-- Takes jobs that wait to be put in; passes over those that another process is taking. Answers which were taken.
delete from arrivals where ctid = any (array(
    select a.ctid from arrivals a where a.seq = any($1::int8[]) order by a.seq for update skip locked
))
returning seq
