-- The core of the store. The same tables as in PostgreSQL, but for the prefix of their names: a program that submits in its
-- own transactions keeps its tables in the same file. Times are microseconds since 1970.
--
-- A live job (state 0) is in exactly one place, and that place is its state: a row of `ready`, a wake row of
-- `timers`, or else a claim. A claim writes no row per job: it deletes the ready rows and adds one row to
-- `claims` for the whole batch. The epoch is raised whenever a job is put back.

create table windlass_meta (
    one           integer primary key check (one = 1),
    version       integer not null,     -- of this schema; written by migrations
    oldest        integer not null      -- the oldest binary that may use it
);

create table windlass_queues (
    id            integer primary key,
    name          text not null unique
);

create table windlass_kinds (
    id            integer primary key,
    name          text not null unique
);

-- What a lane's number stands for. Lane -n holds the suspects of lane n.
create table windlass_lanes (
    id            integer primary key,
    queue         integer not null references windlass_queues (id),
    kind          integer not null references windlass_kinds (id),
    version       integer not null,
    unique (queue, kind, version)
);

create table windlass_jobs (
    id            blob    not null primary key,
    lane          integer not null,     -- written at submit
    kind          integer not null,     -- written at submit
    priority      integer not null,     -- written at submit
    state         integer not null default 0,   -- 0 live, 1 done, 2 failed, 3 cancelled
    epoch         integer not null default 0,   -- raised whenever the job is put back or ended from outside
    rev           integer not null default 0,   -- raised by commit alone
    rev_epoch     integer not null default -1,  -- the epoch that wrote rev
    attempts      integer not null default 0,   -- failed ones; written by commit
    deaths        integer not null default 0,   -- written by reap
    crashes       integer not null default 0,   -- written by reap
    suspect       integer not null default 0,   -- set by reap, cleared by commit
    submitted_at  integer not null,
    due_at        integer not null,     -- its rank is this plus its priority's share; written by submit, commit
    deadline_at   integer,
    digest        blob    not null,
    codec         integer not null,
    input         blob    not null,
    key           text,
    tags          text,                 -- JSON array, or null for none
    options       text,
    settings      text,                 -- JSON, or null for none
    spent         text,                 -- JSON array, or null for none; written by commit
    worker        integer,              -- who wrote the last change
    started_at    integer,
    finished_at   integer,
    trouble       integer,              -- the state again, if failed or cancelled: what its index holds
    reason        integer,
    failure       text,                 -- JSON of the last error
    output_codec  integer,
    output        blob
) without rowid;

create unique index windlass_jobs_key on windlass_jobs (kind, key) where key is not null;
create index windlass_jobs_trouble on windlass_jobs (trouble, id) where trouble is not null;

create table windlass_tags (
    tag           text not null,
    job           blob not null,
    primary key (tag, job)
) without rowid;

create table windlass_ready (
    lane          integer not null,
    rank          integer not null,
    job           blob    not null,
    primary key (lane, rank, job)
) without rowid;

create table windlass_timers (
    due_at        integer not null,
    job           blob    not null,
    what          integer not null,     -- 0 wake, 1 deadline
    primary key (due_at, job, what)
) without rowid;

create table windlass_workers (
    id            integer primary key,
    name          text    not null,
    beacon        text,
    lease_until   integer not null,
    life          integer not null default 0    -- 0 alive, 1 dead with claims to walk, 2 gone
);

-- One row per claim: the jobs it took, 20 bytes each (id, then epoch big-endian).
create table windlass_claims (
    worker        integer not null,
    number        integer not null,
    alone         integer not null,
    claimed_at    integer not null,
    jobs          blob    not null,
    primary key (worker, number)
) without rowid;

-- One row per failed attempt; a job has at most one per epoch.
create table windlass_attempts (
    job           blob    not null,
    epoch         integer not null,
    worker        integer not null,
    started_at    integer not null,
    ended_at      integer not null,
    failure       text    not null,
    primary key (job, epoch)
) without rowid;

-- A version per queue (0 is the timers' gate) and writer; compared by sum.
create table windlass_gates (
    queue         integer not null,
    writer        integer not null,
    version       integer not null,
    primary key (queue, writer)
) without rowid;
