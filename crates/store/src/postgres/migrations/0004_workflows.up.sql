-- Workflows: journals, contexts, and what is undone before a job ends. The same tables as in SQLite.

alter table jobs add column undo bool;    -- true once there is something to undo; false from when someone has it undone
                                          -- from outside: the deadline of the job is void then
alter table jobs add column unwind text;  -- JSON: how it ends once that is undone; written by commit, and whoever ends it

-- What a workflow has done so far. Rows of one job are written in order and read in order.
create table journal (
    job           uuid not null,
    seq           int4 not null,        -- its place
    op            int2 not null,
    mark          int2 not null,
    at            int8 not null,
    codec         int2 not null,
    name          text not null,
    key           text,
    line          text,                 -- where in the source
    payload       bytea not null,
    primary key (job, seq)
);

create table context (
    job           uuid not null,
    name          text not null,
    codec         int2 not null,
    value         bytea not null,
    primary key (job, name)
);
