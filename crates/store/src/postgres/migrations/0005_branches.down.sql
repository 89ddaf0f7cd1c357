-- Back to workflows: children of branches are plain children that nobody counts, and what was told of branches is gone.
delete from signals where name = 'windlass.branch';
delete from heard where name = 'windlass.branch';
drop table tallies;
drop table branches;
drop index jobs_bad;
drop index jobs_branch;
drop index jobs_parent;
alter table jobs drop column branch;
alter table jobs drop column spawn;
alter table jobs drop column item;
alter table jobs drop column items;
alter table jobs drop column tallied;
alter table jobs drop column branched;
create index jobs_parent on jobs (parent, id) where parent is not null;
