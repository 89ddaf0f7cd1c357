-- Takes branches that are due to be looked at, a bounded number: until $3 nobody else looks at them, and whoever took them has
-- said by then when that is next. Walks branches_poll; passes over those that someone writes to. Answers them in the order in
-- which they were due.
with due as materialized (
    select b.ctid as at, b.job, b.number, b.poll_at from branches b where b.poll_at <= $1::int8
    order by b.poll_at, b.job, b.number limit $2::int8 for update skip locked
), took as (
    update branches set poll_at = $3::int8 where ctid = any (array(select at from due))
)
select job, number from due order by poll_at, job, number
