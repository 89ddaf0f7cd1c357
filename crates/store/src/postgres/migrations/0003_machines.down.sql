-- Back to plain jobs: what is parked is ready (in line, if it has given up the slot of its key; set aside, if it is
-- paused), signals and transitions are gone.
do $$ begin
    execute replace(pg_get_functiondef('submit'::regproc), ', ''waiting'')', ')');
end $$;
update jobs set settings = replace(replace(replace(settings, ',"waiting"', ''), ', "waiting"', ''), '"waiting",', '')
where settings like '%"waiting"%';
update arrivals set settings = replace(replace(replace(settings, ',"waiting"', ''), ', "waiting"', ''), '"waiting",', '')
where settings like '%"waiting"%';
update schedules set spec = replace(replace(replace(spec, ',"waiting"', ''), ', "waiting"', ''), '"waiting",', '')
where spec like '%"waiting"%';

delete from timers t using jobs j where t.job = j.id and t.what = 0 and j.parked = 1;
insert into line (serial, place, job)
select j.serial, j.place, j.id from jobs j
where j.state = 0 and j.parked = 1 and j.hold is null and j.serial is not null
  and not exists (select from holders h where h.serial = j.serial and h.job = j.id);
insert into ready (lane, rank, job)
select j.lane, j.due_at + j.priority * 60000000::int8, j.id from jobs j
where j.state = 0 and j.parked = 1 and j.hold is null
  and (j.serial is null or exists (select from holders h where h.serial = j.serial and h.job = j.id));
update jobs set hold = 2 where state = 0 and parked = 1 and hold = 1;

drop table steps;
drop table heard;
drop table signals;
alter table arrivals drop column stage;
alter table jobs drop column stage;
alter table jobs drop column data;
alter table jobs drop column data_codec;
alter table jobs drop column since;
alter table jobs drop column run;
alter table jobs drop column wait;
alter table jobs drop column waits;
alter table jobs drop column needs;
alter table jobs drop column until;
alter table jobs drop column parked;
alter table jobs drop column pending;
alter table jobs drop column round;
