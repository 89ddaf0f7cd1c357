-- Machines: stages, signals, waits and children. The same tables as in SQLite.
--
-- A parked job (`parked` is 1) is in no place but, with a timeout, among the timers: its wake row there ends the wait.
-- `stage`, `data` and the columns of the wait change with every step and are in no index, so that a step's commit stays on
-- the job's page.

alter table jobs add column stage text;       -- the stage a machine is in; written at submit, by commit
alter table jobs add column data bytea;       -- the data of the stage; null while that is the input
alter table jobs add column data_codec int2;
alter table jobs add column since int4 not null default 0;  -- the revision that led to the stage
alter table jobs add column run int4 not null default 0;    -- the steps it has made since it last waited
alter table jobs add column wait text;        -- JSON: what it waits for, or waited for when it last made progress
alter table jobs add column waits text[];     -- the names of the signals it waits for; null if it waits for children
alter table jobs add column needs int4;       -- of how many of these there must be one
alter table jobs add column until int8;       -- when the wait is over whatever has come
alter table jobs add column parked int2;      -- 1 while it is parked; 0 once what it waited for woke it: its timer is void
alter table jobs add column pending int4 not null default 0;  -- children of the round `since` that have not ended
alter table jobs add column round int4;       -- of a child: the revision of its parent that submitted it

-- Inboxes. A signal is deleted when a step that was shown it makes progress.
create table signals (
    job           uuid not null,
    number        int8 not null generated always as identity,
    name          text not null,
    at            int8 not null,
    codec         int2 not null,
    payload       bytea not null,
    primary key (job, number)
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000);

-- Every signal ever delivered to a job that is kept: a repeat is known, whether the first was consumed or not.
create table heard (
    job           uuid not null,
    name          text not null,
    dedup         text not null,
    primary key (job, name, dedup)
);

-- Every transition of a machine.
create table steps (
    job           uuid not null,
    rev           int4 not null,        -- the revision it made
    stage         text not null,        -- the stage that ran
    next          text,                 -- the stage it led to; null if it ended the job
    how           text not null,
    at            int8 not null,
    worker        int8 not null,
    primary key (job, rev)
);

alter table arrivals add column stage text;

-- A name that `submit` takes is had by jobs that wait, too.
do $$ begin
    execute replace(pg_get_functiondef('submit'::regproc), '''running'')', '''running'', ''waiting'')');
end $$;
