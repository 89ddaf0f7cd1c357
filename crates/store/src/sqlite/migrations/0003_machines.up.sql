-- Machines: stages, signals, waits and children. The same tables as in PostgreSQL.
--
-- A parked job (`parked` is set) is in no place but, with a timeout, among the timers: its wake row there ends the wait.

alter table windlass_jobs add column stage text;       -- the stage a machine is in; written at submit, by commit
alter table windlass_jobs add column data blob;        -- the data of the stage; null while that is the input. A large one is
                                                       -- in windlass_payloads (what is 4), and bit 4 of far says so
alter table windlass_jobs add column data_codec integer;
alter table windlass_jobs add column since integer not null default 0;  -- the revision that led to the stage
alter table windlass_jobs add column run integer not null default 0;  -- the steps it has made since it last waited
alter table windlass_jobs add column wait text;        -- JSON: what it waits for, or waited for when it last made progress
alter table windlass_jobs add column until integer;    -- when the wait is over whatever has come
alter table windlass_jobs add column parked integer;   -- 1 while it is parked for signals, 2 for children
alter table windlass_jobs add column pending integer not null default 0;   -- children of the round `since` that have not ended
alter table windlass_jobs add column round integer;    -- of a child: the revision of its parent that submitted it

-- Parked jobs whose children have all ended. There are none: whoever ends the last child wakes the parent. The sweep looks.
create index windlass_jobs_stuck on windlass_jobs (id) where parked = 2 and pending = 0;

-- Inboxes. A signal is deleted when a step that was shown it makes progress.
create table windlass_signals (
    job           blob    not null,
    number        integer not null,
    name          text    not null,
    at            integer not null,
    codec         integer not null,
    payload       blob    not null,
    primary key (job, number)
) without rowid;

-- Every signal ever delivered to a job that is kept: a repeat is known, whether the first was consumed or not.
create table windlass_heard (
    job           blob    not null,
    name          text    not null,
    dedup         text    not null,
    primary key (job, name, dedup)
) without rowid;

-- Every transition of a machine.
create table windlass_steps (
    job           blob    not null,
    rev           integer not null,     -- the revision it made
    stage         text    not null,     -- the stage that ran
    next          text,                 -- the stage it led to; null if it ended the job
    how           text    not null,
    at            integer not null,
    worker        integer not null,
    primary key (job, rev)
) without rowid;

alter table windlass_arrivals add column stage text;
