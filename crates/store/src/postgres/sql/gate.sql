-- The versions of gates, summed over their writers.
select queue, sum(version)::int8 from gates where queue = any($1::int4[]) group by queue
