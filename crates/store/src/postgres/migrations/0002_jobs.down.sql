-- Back to the core: what waits in a line, is set aside or throttled is ready; keys, limits, schedules and the audit log
-- are gone.
do $$ begin
    if exists (select from arrivals) then
        raise exception 'jobs wait to be put in; start a worker first';
    end if;
end $$;

insert into lanes (queue, kind, version, bucket)
select distinct queue, kind, version, 0 from lanes where bucket <> 0
on conflict do nothing;

update ready r set lane = sign(r.lane) * p.id
from lanes l join lanes p on p.queue = l.queue and p.kind = l.kind and p.version = l.version and p.bucket = 0
where l.id = abs(r.lane) and l.bucket <> 0;

update jobs j set lane = p.id
from lanes l join lanes p on p.queue = l.queue and p.kind = l.kind and p.version = l.version and p.bucket = 0
where l.id = j.lane and l.bucket <> 0;

insert into ready (lane, rank, job)
select case when j.suspect then -j.lane else j.lane end, j.due_at + j.priority * 60000000::int8, j.id
from jobs j where j.state = 0 and (j.hold = 2 or exists (select from line l where l.serial = j.serial and l.job = j.id));

delete from timers where what = 2;
drop function submit;
drop table misses, firings, schedules, arrivals, audit, orders, pauses, scopes, line, holders, serials;
drop index jobs_parent;
alter table jobs drop column parent, drop column serial, drop column place, drop column weight, drop column hold,
    drop column keeps;
delete from lanes where bucket <> 0;
alter table lanes drop constraint lanes_name;
alter table lanes drop column bucket;
alter table lanes add constraint lanes_queue_kind_version_key unique (queue, kind, version);
drop table buckets;
alter table workers drop column serves;
alter table queues drop column paused_at, drop column paused_by, drop column paused_note;
