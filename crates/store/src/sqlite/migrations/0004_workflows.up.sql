-- Workflows: journals, contexts, and what is undone before a job ends. The same tables as in PostgreSQL.
--
-- A child whose end its parent is told of by a signal has the round -1: no wait counts it.

alter table windlass_jobs add column undo integer;     -- 1 if there is something to undo; written by commit
alter table windlass_jobs add column unwind text;      -- JSON: how it ends once that is done, while it is being unwound; written
                                                       -- by commit and whoever ends it from outside, cleared by a retry

-- What workflows have done so far. Read in one range, and added to by commit alone.
create table windlass_journal (
    job           blob    not null,
    seq           integer not null,     -- its place
    op            integer not null,     -- what was called, by number
    mark          integer not null,     -- how far it got, by number
    name          text    not null,
    key           text,
    line          text,                 -- where in the source it was called
    at            integer not null,     -- by the clock of the worker
    codec         integer not null,
    payload       blob    not null,
    primary key (job, seq)
) without rowid;

create table windlass_context (
    job           blob    not null,
    name          text    not null,
    codec         integer not null,
    value         blob    not null,
    primary key (job, name)
) without rowid;
