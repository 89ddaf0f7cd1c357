-- Puts woken jobs into the ready set and moves the gates of their queues.
with woken as (
    select * from unnest($1::int4[], $2::int8[], $3::uuid[], $4::int4[]) as w (lane, rank, job, of_lane)
), to_ready as (
    insert into ready (lane, rank, job) select lane, rank, job from woken on conflict do nothing
)
insert into gates (queue, writer, version)
select l.queue, $5::int8, (random() * 1e12)::int8 from lanes l where l.id in (select of_lane from woken)
group by l.queue
on conflict (queue, writer) do update set version = gates.version + 1
