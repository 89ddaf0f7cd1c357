-- Takes over a file of a build from before names had a prefix.
alter table meta rename to windlass_meta;
alter table queues rename to windlass_queues;
alter table kinds rename to windlass_kinds;
alter table lanes rename to windlass_lanes;
alter table jobs rename to windlass_jobs;
alter table tags rename to windlass_tags;
alter table ready rename to windlass_ready;
alter table timers rename to windlass_timers;
alter table workers rename to windlass_workers;
alter table claims rename to windlass_claims;
alter table attempts rename to windlass_attempts;
alter table gates rename to windlass_gates;
drop index jobs_key;
create unique index windlass_jobs_key on windlass_jobs (kind, key) where key is not null;
drop index jobs_trouble;
create index windlass_jobs_trouble on windlass_jobs (trouble, id) where trouble is not null;
