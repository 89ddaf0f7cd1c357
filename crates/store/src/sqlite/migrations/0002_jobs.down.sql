-- Back to the core: what waits in a line, is set aside or throttled is ready; keys, limits, schedules and the audit log
-- are gone.
create temp table going_down (n integer, constraint "jobs wait to be put in; start a worker first" check (n = 0));
insert into going_down select count(*) from windlass_arrivals;
drop table going_down;

insert into windlass_lanes (queue, kind, version, bucket)
select distinct queue, kind, version, 0 from windlass_lanes where bucket <> 0
on conflict do nothing;

update windlass_ready set lane = (case when lane < 0 then -1 else 1 end) * (
    select p.id from windlass_lanes l join windlass_lanes p on p.queue = l.queue and p.kind = l.kind and p.version = l.version and p.bucket = 0
    where l.id = abs(windlass_ready.lane))
where abs(lane) in (select id from windlass_lanes where bucket <> 0);

update windlass_jobs set lane = (
    select p.id from windlass_lanes l join windlass_lanes p on p.queue = l.queue and p.kind = l.kind and p.version = l.version and p.bucket = 0
    where l.id = windlass_jobs.lane)
where lane in (select id from windlass_lanes where bucket <> 0);

insert into windlass_ready (lane, rank, job)
select case when j.suspect then -j.lane else j.lane end, j.due_at + j.priority * 60000000, j.id
from windlass_jobs j
where j.state = 0 and (j.hold = 2 or exists (select 1 from windlass_line l where l.serial = j.serial and l.job = j.id));

update windlass_jobs set input = (select bytes from windlass_payloads where job = windlass_jobs.id and what = 1) where far & 1;
update windlass_jobs set output = (select bytes from windlass_payloads where job = windlass_jobs.id and what = 2) where far & 2;

delete from windlass_timers where what = 2;
drop table windlass_misses;
drop table windlass_firings;
drop table windlass_schedules;
drop table windlass_arrivals;
drop table windlass_audit;
drop table windlass_orders;
drop table windlass_pauses;
drop table windlass_scopes;
drop table windlass_line;
drop table windlass_holders;
drop table windlass_serials;
drop table windlass_payloads;
drop index windlass_jobs_parent;
alter table windlass_jobs drop column parent;
alter table windlass_jobs drop column serial;
alter table windlass_jobs drop column place;
alter table windlass_jobs drop column weight;
alter table windlass_jobs drop column hold;
alter table windlass_jobs drop column keeps;
alter table windlass_jobs drop column far;
delete from windlass_lanes where bucket <> 0;
create table windlass_lanes_old (
    id            integer primary key,
    queue         integer not null references windlass_queues (id),
    kind          integer not null references windlass_kinds (id),
    version       integer not null,
    unique (queue, kind, version)
);
insert into windlass_lanes_old (id, queue, kind, version) select id, queue, kind, version from windlass_lanes;
drop table windlass_lanes;
alter table windlass_lanes_old rename to windlass_lanes;
drop table windlass_buckets;
alter table windlass_workers drop column serves;
alter table windlass_queues drop column paused_at;
alter table windlass_queues drop column paused_by;
alter table windlass_queues drop column paused_note;
