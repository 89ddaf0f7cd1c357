-- Back to workflows: the children of branches are children nobody waits for, and a job that waited for a branch waits for a
-- signal that nobody sends.
drop table windlass_branches;
drop index windlass_jobs_parent;
alter table windlass_jobs drop column branched;
alter table windlass_jobs drop column tallied;
alter table windlass_jobs drop column items;
alter table windlass_jobs drop column item;
alter table windlass_jobs drop column spawn;
alter table windlass_jobs drop column branch;
create index windlass_jobs_parent on windlass_jobs (parent, id) where parent is not null;
