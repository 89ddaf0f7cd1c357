-- Back to machines: journals and contexts are gone, so a workflow that goes on begins anew, and nothing is undone. What had
-- diverged had stopped.
update windlass_jobs set reason = 1 where reason = 7;
drop table windlass_context;
drop table windlass_journal;
alter table windlass_jobs drop column unwind;
alter table windlass_jobs drop column undo;
