-- Jobs that match, newest first. Walks the primary key backwards; a live state is told by where the job is.
select * from (
    select j.id, j.lane, j.priority, j.state, j.reason, j.attempts, j.submitted_at, j.due_at, j.finished_at, j.key,
       (coalesce(j.hold, 0) = 2 or exists (select 1 from ready r
               where r.lane in (j.lane, -j.lane) and r.rank = j.due_at + j.priority * $1::int8 and r.job = j.id)
        or exists (select 1 from line l where l.serial = j.serial and l.place = j.place and l.job = j.id)) as is_ready,
       exists (select 1 from timers t where t.due_at = j.due_at and t.job = j.id and t.what = 0) as is_scheduled,
       coalesce(j.parked, 0) = 1 as is_parked, j.stage
    from jobs j
    where j.id < coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
      and ($3::int2 is null or j.state = $3)
      and ($6::text is null or j.lane in (select l.id from lanes l join kinds k on k.id = l.kind where k.name = $6))
      and ($7::text is null or j.lane in (select l.id from lanes l join queues q on q.id = l.queue where q.name = $7))
      and ($8::text is null or exists (select 1 from tags t where t.tag = $8 and t.job = j.id))
      and ($9::text is null or j.key = $9)
      and ($11::text is null or j.stage = $11)
      and ($12::int4 is null or j.lane in (select l.id from lanes l where l.version = $12))
    order by j.id desc
) s
where ($4::bool is null or is_ready = $4) and ($5::bool is null or is_scheduled = $5)
  and ($13::bool is null or is_parked = $13)
limit $10
