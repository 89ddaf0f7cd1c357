-- Back to plain jobs: what is parked is ready, in line or aside; signals and transitions are gone.
update windlass_jobs set hold = 2 where state = 0 and parked is not null and hold = 1;
insert into windlass_line (serial, place, job)
select serial, place, id from windlass_jobs j
where state = 0 and parked is not null and hold is null and serial is not null
  and not exists (select 1 from windlass_holders h where h.serial = j.serial and h.job = j.id);
insert into windlass_ready (lane, rank, job)
select lane, due_at + priority * 60000000, id from windlass_jobs j
where state = 0 and parked is not null and hold is null
  and (serial is null or exists (select 1 from windlass_holders h where h.serial = j.serial and h.job = j.id));
delete from windlass_timers where what = 0 and job in (select id from windlass_jobs where parked is not null);
delete from windlass_payloads where what = 4;
update windlass_jobs set far = nullif(far & 3, 0) where far & 4;
update windlass_jobs set settings = replace(replace(settings, ',"waiting"', ''), '"waiting",', '')
where settings like '%"waiting"%';
update windlass_arrivals set settings = replace(replace(settings, ',"waiting"', ''), '"waiting",', '')
where settings like '%"waiting"%';
update windlass_schedules set spec = replace(replace(spec, ',"waiting"', ''), '"waiting",', '')
where spec like '%"waiting"%';

drop index windlass_jobs_stuck;
drop table windlass_steps;
drop table windlass_heard;
drop table windlass_signals;
alter table windlass_arrivals drop column stage;
alter table windlass_jobs drop column stage;
alter table windlass_jobs drop column data;
alter table windlass_jobs drop column data_codec;
alter table windlass_jobs drop column since;
alter table windlass_jobs drop column run;
alter table windlass_jobs drop column wait;
alter table windlass_jobs drop column until;
alter table windlass_jobs drop column parked;
alter table windlass_jobs drop column pending;
alter table windlass_jobs drop column round;
