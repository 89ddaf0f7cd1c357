-- Identity, flow control, schedules and operator control. The same tables as in PostgreSQL.
--
-- A live job is now in one place more than before: the line of its serial key. Jobs that are set aside (paused, or told
-- to end) are in none; their `hold` says so. All of them count as ready, and none of them is walked by a claim.

alter table windlass_queues add column paused_at integer;     -- set while nothing is claimed from it
alter table windlass_queues add column paused_by text;
alter table windlass_queues add column paused_note text;

alter table windlass_workers add column serves text not null default '[]';   -- JSON: queues, with slots and kinds

-- Named token buckets. The level is in tokens times the microseconds of `per`, as of `at`.
create table windlass_buckets (
    id            integer primary key,
    name          text    not null unique,
    rate          integer not null check (rate > 0),
    per           integer not null check (per > 0),
    burst         integer not null check (burst > 0),
    level         integer not null,
    at            integer not null,
    lifted        integer not null default 0
);

-- Jobs under a rate limit have lanes of their own, which a claim walks as far as their bucket pays for them.
create table windlass_lanes_new (
    id            integer primary key,
    queue         integer not null references windlass_queues (id),
    kind          integer not null references windlass_kinds (id),
    version       integer not null,
    bucket        integer not null default 0,    -- 0 is none
    unique (queue, kind, version, bucket)
);
insert into windlass_lanes_new (id, queue, kind, version) select id, queue, kind, version from windlass_lanes;
drop table windlass_lanes;
alter table windlass_lanes_new rename to windlass_lanes;

alter table windlass_jobs add column parent blob;         -- the job that submitted it
alter table windlass_jobs add column serial integer;      -- its serial key
alter table windlass_jobs add column place integer;       -- its place in that key's line: when it first was due
alter table windlass_jobs add column weight integer;      -- what a start costs of its lane's bucket
alter table windlass_jobs add column hold integer;        -- 1 to be set aside when it would next be ready, 2 set aside
alter table windlass_jobs add column keeps integer;       -- whether it keeps its slot while it waits for another attempt
alter table windlass_jobs add column far integer;         -- which payloads are in their own table: 1 input, 2 output, 3 both

create index windlass_jobs_parent on windlass_jobs (parent, id) where parent is not null;

-- Payloads too large for the job's row, which is written at every step. PostgreSQL keeps them apart by itself.
create table windlass_payloads (
    job           blob    not null,
    what          integer not null,     -- 1 input, 2 output
    bytes         blob    not null,
    primary key (job, what)
);

create table windlass_serials (
    id            integer primary key,
    key           text    not null unique,
    slots         integer not null default 1 check (slots > 0)
);

-- Who has a slot of a serial key: jobs that are ready, run, or keep it while they wait.
create table windlass_holders (
    serial        integer not null,
    job           blob    not null,
    primary key (serial, job)
) without rowid;

-- Who waits for one, by place.
create table windlass_line (
    serial        integer not null,
    place         integer not null,
    job           blob    not null,
    primary key (serial, place, job)
) without rowid;

-- The job that last took a unique name. Whether it has it still is seen when someone asks for the name: nothing is
-- written when a job moves.
create table windlass_scopes (
    kind          integer not null,
    key           text    not null,
    job           blob    not null,
    primary key (kind, key)
) without rowid;

-- Why a job is held; a row per paused job, and one per running job that was told to end.
create table windlass_pauses (
    job           blob    not null primary key,
    at            integer not null,
    author        text    not null,
    note          text
) without rowid;

create table windlass_orders (
    job           blob    not null primary key,
    worker        integer not null,
    epoch         integer not null,
    deadline_at   integer not null,
    author        text    not null,
    note          text
) without rowid;
create index windlass_orders_worker on windlass_orders (worker);

create table windlass_audit (
    number        integer primary key,
    at            integer not null,
    author        text    not null,
    action        text    not null,
    subject       text    not null,
    note          text
);
create index windlass_audit_subject on windlass_audit (subject, number);

-- Jobs submitted in transactions of others: only appended there; put in by the next worker that looks.
create table windlass_arrivals (
    seq           integer primary key,
    id            blob    not null,
    kind          text    not null,
    version       integer not null default 1,
    queue         text    not null default 'default',
    key           text,
    priority      integer not null default 0,
    at            integer,              -- microseconds since 1970; null is at once
    delay         integer not null default 0,   -- microseconds
    deadline_at   integer,
    parent        blob,
    tags          text,                 -- JSON array, or null for none
    options       text,                 -- JSON, or null for none
    settings      text,                 -- JSON, or null for none
    codec         integer not null default 0,
    input         blob    not null,
    digest        blob                  -- null: made from kind and input
);

create table windlass_schedules (
    id            integer primary key,
    name          text    not null unique,
    spec          text    not null,     -- JSON
    codec         integer not null,
    input         blob    not null,
    next_at       integer,              -- the first tick that is not handled; null for none
    paused_at     integer,
    paused_by     text,
    paused_note   text,
    last_job      blob
);
create index windlass_schedules_next on windlass_schedules (next_at) where next_at is not null and paused_at is null;

-- Every firing of a schedule: a tick fires once.
create table windlass_firings (
    schedule      integer not null,
    tick          integer not null,
    job           blob    not null,
    primary key (schedule, tick)
) without rowid;

-- One row for all ticks that a schedule missed at a time.
create table windlass_misses (
    schedule      integer not null,
    at            integer not null,     -- when that was seen
    first         integer not null,
    last          integer not null,
    count         integer not null,
    at_least      integer not null,     -- whether counting was given up
    why           text    not null,
    primary key (schedule, at)
) without rowid;
