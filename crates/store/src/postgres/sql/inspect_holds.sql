-- What keeps a live job from running.
select j.suspect, j.serial is not null, p.at, p.author, p.note, q.paused_at, q.paused_by, q.paused_note,
       o.deadline_at, o.author, o.note, s.key, s.slots, j.serial, j.place,
       exists (select from holders h where h.serial = j.serial and h.job = j.id),
       exists (select from line l where l.serial = j.serial and l.place = j.place and l.job = j.id),
       l.bucket, j.weight, r.rank,
       (select count(*) from (
            select from ready a
            where r.rank is not null and a.lane = r.lane and (a.rank, a.job) < (r.rank, r.job) limit 1000
        ) ahead),
       coalesce($3::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8),
       case when j.parked = 1 then j.wait end, j.until, j.pending,
       case when j.parked = 1 then array(select distinct s.name from signals s where s.job = j.id and s.aside is null) end
from jobs j
join lanes l on l.id = j.lane
join queues q on q.id = l.queue
left join pauses p on p.job = j.id
left join orders o on o.job = j.id
left join serials s on s.id = j.serial
left join lateral (
    select r.lane, r.rank, r.job from ready r
    where r.lane in (j.lane, -j.lane) and r.rank = j.due_at + j.priority * $2::int8 and r.job = j.id limit 1
) r on true
where j.id = $1 and j.state = 0
