-- Back to the core: what waits in a line, is set aside or throttled is ready; keys, limits, schedules and the audit log
-- are gone.
create temp table going_down (n integer, constraint "jobs wait to be put in; start a worker first" check (n = 0));
insert into going_down select count(*) from arrivals;
drop table going_down;

insert into lanes (queue, kind, version, bucket)
select distinct queue, kind, version, 0 from lanes where bucket <> 0
on conflict do nothing;

update ready set lane = (case when lane < 0 then -1 else 1 end) * (
    select p.id from lanes l join lanes p on p.queue = l.queue and p.kind = l.kind and p.version = l.version and p.bucket = 0
    where l.id = abs(ready.lane))
where abs(lane) in (select id from lanes where bucket <> 0);

update jobs set lane = (
    select p.id from lanes l join lanes p on p.queue = l.queue and p.kind = l.kind and p.version = l.version and p.bucket = 0
    where l.id = jobs.lane)
where lane in (select id from lanes where bucket <> 0);

insert into ready (lane, rank, job)
select case when j.suspect then -j.lane else j.lane end, j.due_at + j.priority * 60000000, j.id
from jobs j
where j.state = 0 and (j.hold = 2 or exists (select 1 from line l where l.serial = j.serial and l.job = j.id));

update jobs set input = (select bytes from payloads where job = jobs.id and what = 1) where far & 1;
update jobs set output = (select bytes from payloads where job = jobs.id and what = 2) where far & 2;

delete from timers where what = 2;
drop table misses;
drop table firings;
drop table schedules;
drop table arrivals;
drop table audit;
drop table orders;
drop table pauses;
drop table scopes;
drop table line;
drop table holders;
drop table serials;
drop table payloads;
drop index jobs_parent;
alter table jobs drop column parent;
alter table jobs drop column serial;
alter table jobs drop column place;
alter table jobs drop column weight;
alter table jobs drop column hold;
alter table jobs drop column keeps;
alter table jobs drop column far;
delete from lanes where bucket <> 0;
create table lanes_old (
    id            integer primary key,
    queue         integer not null references queues (id),
    kind          integer not null references kinds (id),
    version       integer not null,
    unique (queue, kind, version)
);
insert into lanes_old (id, queue, kind, version) select id, queue, kind, version from lanes;
drop table lanes;
alter table lanes_old rename to lanes;
drop table buckets;
alter table workers drop column serves;
alter table queues drop column paused_at;
alter table queues drop column paused_by;
alter table queues drop column paused_note;
