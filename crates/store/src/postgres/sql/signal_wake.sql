-- Wakes those of some jobs that are parked and have what they wait for: the one way out of a wait before its time is
-- over. Their timers are forgotten (one that is firing is passed over, and finds nothing to do), and they enter the ready
-- set, the line of their serial key if they have none of its slots, or are set aside. Gates move for what became ready.
-- A statement of its own, after the jobs are locked: it must see the signals of whoever had the lock before. Walks the
-- primary keys of jobs, signals and timers. Answers who was woken, and whose key is to be settled.
with clock as materialized (
    select coalesce($2::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now
), woken as (
    update jobs j
    set parked = 0, due_at = clock.now, hold = case when j.hold = 1 then 2 else j.hold end
    from clock
    where j.id = any($1::uuid[]) and j.parked = 1 and j.state = 0
      and case when j.waits is null then j.pending <= 0
          else (select count(distinct s.name) from signals s
                where s.job = j.id and s.name = any(j.waits) and s.aside is null) >= j.needs end
    returning j.id, j.lane, j.suspect, j.due_at + j.priority * $3::int8 as rank, j.until, j.hold, j.serial, j.place,
              j.serial is null
              or (select true from holders h where h.serial = j.serial and h.job = j.id) is not null as free
), untimed as (
    delete from timers where ctid = any (array(
        select t.ctid from woken w join timers t on t.due_at = w.until and t.job = w.id and t.what = 0
        for update of t skip locked
    ))
), to_line as (
    insert into line (serial, place, job) select serial, place, id from woken where hold is null and not free
    on conflict do nothing
), to_ready as (
    insert into ready (lane, rank, job)
    select case when suspect then -lane else lane end, rank, id from woken where hold is null and free
), to_gates as (
    insert into gates (queue, writer, version)
    select l.queue, $4::int8, (random() * 1e12)::int8 from lanes l
    where l.id in (select lane from woken where hold is null and free)
    group by l.queue
    on conflict (queue, writer) do update set version = gates.version + 1
)
select id, serial is not null and (hold is not null or not free) from woken
