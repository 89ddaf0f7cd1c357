-- The core of the store. The same tables as in SQLite; times are microseconds since 1970, which `moment()` makes
-- readable: select id, moment(due_at) from jobs.
--
-- A live job (state 0) is in exactly one place, and that place is its state: a row of `ready`, a wake row of
-- `timers`, or else a claim. A claim writes no row per job: it deletes the ready rows and adds one row to
-- `claims` for the whole batch. The epoch is raised whenever a job is put back.
--
-- Lock order, for every statement: workers, timers, jobs (by id), ready, claims, gates.

create table meta (
    one           int4 primary key check (one = 1),
    version       int4 not null,        -- of this schema; written by migrations
    oldest        int4 not null         -- the oldest binary that may use it
);

create function moment(micros int8) returns timestamptz language sql immutable parallel safe
    return to_timestamp(micros / 1000000) + (micros % 1000000) * interval '1 microsecond';

create table queues (
    id            int4 generated always as identity primary key,
    name          text not null unique
);

create table kinds (
    id            int4 generated always as identity primary key,
    name          text not null unique
);

-- What a lane's number stands for. Lane -n holds the suspects of lane n.
create table lanes (
    id            int4 generated always as identity primary key,
    queue         int4 not null references queues (id),
    kind          int4 not null references kinds (id),
    version       int4 not null,
    unique (queue, kind, version)
);

-- Columns that an index or its predicate names never change while a job succeeds, so that its commit can stay
-- on its page: `trouble` is written only when it fails.
create table jobs (
    id            uuid not null primary key,
    submitted_at  int8 not null,
    due_at        int8 not null,        -- its rank is this plus its priority's share; written by submit, commit
    deadline_at   int8,
    worker        int8,                 -- who wrote the last change
    started_at    int8,
    finished_at   int8,
    lane          int4 not null,        -- written at submit
    kind          int4 not null,        -- written at submit
    epoch         int4 not null default 0,   -- raised whenever the job is put back or ended from outside
    rev           int4 not null default 0,   -- raised by commit alone
    rev_epoch     int4 not null default -1,  -- the epoch that wrote rev
    attempts      int4 not null default 0,   -- failed ones; written by commit
    priority      int2 not null,        -- written at submit
    state         int2 not null default 0,   -- 0 live, 1 done, 2 failed, 3 cancelled
    codec         int2 not null,
    deaths        int2 not null default 0,   -- written by reap
    crashes       int2 not null default 0,   -- written by reap
    trouble       int2,                 -- the state again, if failed or cancelled: what its index holds
    reason        int2,
    output_codec  int2,
    suspect       bool not null default false,  -- set by reap, cleared by commit
    digest        bytea not null,
    input         bytea not null,
    key           text,
    tags          text,                 -- JSON array, or null for none
    options       text,
    settings      text,                 -- JSON, or null for none
    spent         text,                 -- JSON array, or null for none; written by commit
    failure       text,                 -- JSON of the last error
    output        bytea
) with (fillfactor = 50);

create unique index jobs_key on jobs (kind, key) where key is not null;
create index jobs_trouble on jobs (trouble, id) where trouble is not null;

create table tags (
    tag           text not null,
    job           uuid not null,
    primary key (tag, job)
);

-- Rows come and go at the pace of the work; vacuum must not wait for a share of a table that is mostly empty.
create table ready (
    rank          int8 not null,
    job           uuid not null,
    lane          int4 not null,
    primary key (lane, rank, job)
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000);

create table timers (
    due_at        int8 not null,
    job           uuid not null,
    what          int2 not null,        -- 0 wake, 1 deadline
    primary key (due_at, job, what)
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000);

create table workers (
    id            int8 primary key,
    lease_until   int8 not null,
    life          int2 not null default 0,   -- 0 alive, 1 dead with claims to walk, 2 gone
    name          text not null,
    beacon        text
) with (fillfactor = 50);

-- One row per claim: the jobs it took and their epochs.
create table claims (
    worker        int8 not null,
    number        int8 not null,
    claimed_at    int8 not null,
    alone         bool not null,
    jobs          uuid[] not null,
    epochs        int4[] not null,
    primary key (worker, number)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
-- Compressing ids costs more than the bytes it saves.
alter table claims alter column jobs set storage external, alter column epochs set storage external;

-- One row per failed attempt; a job has at most one per epoch.
create table attempts (
    job           uuid not null,
    worker        int8 not null,
    started_at    int8 not null,
    ended_at      int8 not null,
    epoch         int4 not null,
    failure       text not null,
    primary key (job, epoch)
);

-- A version per queue (0 is the timers' gate) and writer; compared by sum.
create table gates (
    queue         int4 not null,
    writer        int8 not null,
    version       int8 not null,
    primary key (queue, writer)
) with (fillfactor = 50);
