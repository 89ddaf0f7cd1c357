-- Puts signals into the inboxes of live jobs, but those that were delivered before and those that find $7 there, or as
-- many that were set aside. No
-- name and dedup id stands twice for one job. The jobs are locked by an earlier statement. Walks the primary keys of
-- jobs, heard and signals. Answers for each, in order: the state of its job (null if there is none), whether it was not
-- delivered before, whether it is now; and what the job waits for, of how many names, which of these are there.
with clock as materialized (
    select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now
), asked as materialized (
    select a.*, j.state, case when j.parked = 1 then j.waits end as waits, j.needs,
           j.state = 0 and h.job is null as fresh
    from unnest($2::uuid[], $3::text[], $4::text[], $5::int2[], $6::bytea[])
         with ordinality as a (job, name, dedup, codec, payload, place)
    left join jobs j on j.id = a.job
    left join heard h on h.job = a.job and h.name = a.name and h.dedup = a.dedup
), ranked as materialized (
    select a.*, case when fresh then row_number() over (partition by a.job, a.fresh order by a.place) end as nth from asked a
), counted as materialized (
    select r.*,
           max(case when r.nth = 1 then
               (select greatest(count(*) filter (where s.aside is null),
                                case when count(s.aside) >= $7::int8 then $7::int8 else 0 end)
                from (select s.aside from signals s where s.job = r.job limit 2 * $7::int8) s)
           end) over (partition by r.job) as there
    from ranked r
), remembered as (
    insert into heard (job, name, dedup) select job, name, dedup from counted where there + nth <= $7
), delivered as (
    insert into signals (job, name, at, codec, payload)
    select c.job, c.name, clock.now, c.codec, c.payload from counted c, clock where c.there + c.nth <= $7 order by c.place
)
select c.state, coalesce(c.fresh, false), coalesce(c.there + c.nth <= $7, false), c.waits, c.needs,
       case when c.nth = 1 and c.needs > 1 and c.waits is not null then
           array(select distinct s.name from signals s
                 where s.job = c.job and s.name = any(c.waits) and s.aside is null)
       end
from counted c order by c.place
