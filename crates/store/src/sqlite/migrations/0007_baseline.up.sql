-- The schema of the store. PostgreSQL has the same tables; differences are noted where they occur. Names have a prefix here,
-- because a program that submits jobs in its own transactions keeps its tables in the same file.
--
-- Times are microseconds since 1970.
--
-- A live job (state 0) is in exactly one place, and that place is its state:
--   scheduled  a row of `timers` with purpose 0
--   ready      a row of `ready`; or a row of `serial_waiting`, while it waits for its serial key; or `hold` is 2: it is paused
--              or being cancelled
--   running    its id and current epoch are in a row of `claims`
--   waiting    `parked` is set; a timeout of the wait is a row of `timers`
-- A claim writes no row per job: it deletes the ready rows and inserts one row into `claims` for the whole batch. Every
-- statement that takes a job out of a claim, other than a commit that continues it, raises the job's epoch.

create table windlass_meta (
    one           integer primary key check (one = 1),
    version       integer not null,     -- of this schema; written by migrations
    oldest        integer not null      -- the oldest binary that may use it
);

create table windlass_queues (
    id            integer primary key,
    name          text not null unique,
    paused_at     integer,              -- set while nothing may be claimed from it
    paused_by     text,
    paused_note   text
);

create table windlass_kinds (
    id            integer primary key,
    name          text not null unique
);

-- A lane is what a claim scans: the jobs of one queue, kind, version and rate limit. Lane -n holds the suspects of lane n.
create table windlass_lanes (
    id            integer primary key,
    queue         integer not null references windlass_queues (id),
    kind          integer not null references windlass_kinds (id),
    version       integer not null,
    rate_limit    integer not null default 0,  -- 0 for none
    unique (queue, kind, version, rate_limit)
);

-- No index, and no predicate of one, names a column that changes while a job succeeds: its commit writes no index. That is
-- why `unsuccessful_state` repeats `state`.
create table windlass_jobs (
    id            blob not null primary key,
    submitted_at  integer not null,
    due_at        integer not null,     -- its rank is this plus its priority's share; written by submit, commit
    deadline_at   integer,
    worker        integer,              -- who wrote the last change
    started_at    integer,
    finished_at   integer,
    lane          integer not null,     -- written at submit
    kind          integer not null,     -- written at submit
    epoch         integer not null default 0,  -- raised whenever a claim of the job ends, but by its own last commit
    rev           integer not null default 0,  -- raised by commits only
    rev_epoch     integer not null default -1,  -- the epoch that wrote rev
    attempts      integer not null default 0,  -- failed attempts; written by commit
    priority      integer not null,     -- written at submit
    state         integer not null default 0,  -- 0 live, 1 done, 2 failed, 3 cancelled
    codec         integer not null,
    worker_deaths integer not null default 0,  -- workers that died while they had it claimed; written by reap
    solo_crashes  integer not null default 0,  -- workers that died while they ran it alone; written by reap
    unsuccessful_state integer,         -- the state again if it failed or was cancelled
    reason        integer,
    output_codec  integer,
    suspect       integer not null default 0,  -- set by reap, cleared by commit
    digest        blob not null,
    input         blob not null,
    key           text,
    tags          text,                 -- JSON array, or null for none
    options       text,
    settings      text,                 -- JSON, or null for none
    retry_counts  text,                 -- JSON array: how much of each retry rule is used; null for none; written by commit
    failure       text,                 -- JSON of the last error
    output        blob,
    parent        blob,                 -- the job that submitted it
    serial_key    integer,
    serial_position integer,            -- its place among the jobs of that key: when it first was due
    rate_weight   integer,              -- tokens of its lane's rate limit that a start costs
    hold          integer,              -- 1: to be held when it would next be ready; 2: held
    keeps_slot    integer,              -- whether it keeps its serial slot while it waits for another attempt
    stage         text,                 -- of a machine; written at submit, by commit
    data          blob,                 -- the data of the stage; null while that is the input
    data_codec    integer,
    stage_rev     integer not null default 0,  -- the revision that led to the stage
    steps_since_wait integer not null default 0,
    wait          text,                 -- JSON: what it waits for, or waited for when it last made progress
    wait_until    integer,              -- when the wait ends whatever has come
    parked        integer,              -- 1 while it is parked for signals, 2 for children
    pending_children integer not null default 0,  -- children submitted by revision stage_rev that have not ended
    parent_rev    integer,              -- of a child: the revision of its parent that submitted it; -1 if its end is a signal
    has_undo      integer,              -- 1 if there is something to undo; written by commit
    unwind        text,                 -- JSON: how it ends once that is undone; written by commit, and by whoever ends it
    branch        integer,              -- of a child: the branch of its parent; written at submit
    spawn         integer,              -- which spawn of the branch made it; written at submit
    item_count    integer,              -- how many children it represents, if not 1; written by commit
    items_counted integer,              -- how many of these are counted already; written by commit
    item          text,                 -- which item of the spawn, if it has several; written at submit
    has_branches  integer,              -- true once it has opened a branch
    external_payloads integer,          -- bits: which payloads are in `payloads`: 1 input, 2 output, 4 data
    last_signal   integer not null default 0,  -- the number of the last signal it was sent; numbers are not used again
    rev_claim     integer,              -- the number of the claim that wrote rev; goes with `worker` and `rev_epoch`
    error_class   text,                 -- of an unsuccessful job: the class of its error
    parked_at     integer               -- when it was parked last
) without rowid;

create unique index windlass_jobs_key on windlass_jobs (kind, key) where key is not null;
create index windlass_jobs_unsuccessful on windlass_jobs (unsuccessful_state, id) where unsuccessful_state is not null;
create index windlass_jobs_parent on windlass_jobs (parent, branch, id) where parent is not null;
-- Children of branches by their items, for people who name one.
create index windlass_jobs_item on windlass_jobs (branch, parent, spawn, item) where branch is not null;
-- Parked jobs whose children have all ended. There should be none: the end of the last child wakes the parent. `repair` looks.
create index windlass_jobs_stuck on windlass_jobs (id) where parked = 2 and pending_children = 0;

-- Payloads too large for the job's row, which every step rewrites. PostgreSQL stores large values apart by itself.
create table windlass_payloads (
    job           blob not null,
    part          integer not null,     -- 1 input, 2 output, 4 data
    bytes         blob not null,
    primary key (job, part)
);

-- Lists of jobs. What has no index here is found through one of these, or among all jobs.
create index windlass_jobs_error_class on windlass_jobs (error_class, id) where error_class is not null;
create index windlass_jobs_unsuccessful_stage on windlass_jobs (stage, id, unsuccessful_state) where unsuccessful_state is not null;

-- Parked jobs by stage. PostgreSQL has a table of them: there, an index would make every wait write all indexes.
create index windlass_jobs_parked on windlass_jobs (stage, id, parked) where parked is not null;

-- In which periods (16 ms, by the times in ids) jobs of a lane were submitted: a row may be left over, but none is missing. It takes the
-- place of an index of jobs by lane, which would cost each job what this costs each transaction that submits some.
create table windlass_lane_periods (
    lane          integer not null,
    period        integer not null,
    primary key (lane, period)
) without rowid;

create table windlass_tags (
    tag           text not null,
    job           blob not null,
    primary key (tag, job)
) without rowid;

create table windlass_ready (
    rank          integer not null,
    job           blob not null,
    lane          integer not null,
    primary key (lane, rank, job)
) without rowid;

create table windlass_timers (
    due_at        integer not null,
    job           blob not null,
    purpose       integer not null,     -- 0 wake, 1 deadline, 2 end of a cancel's grace
    primary key (due_at, job, purpose)
) without rowid;

create table windlass_workers (
    id            integer primary key,
    lease_until   integer not null,
    status        integer not null default 0,  -- 0 alive, 1 dead with claims to return, 2 gone
    name          text not null,
    liveness_file text,                 -- the lock file that its process holds while it lives
    serves        text not null default '[]',  -- JSON: which queues, with how many slots and which kinds
    progress      text,                 -- JSON: what its attempts last reported; written by renew
    token         text,                 -- the token with which a server registered it; null for a process with access to this file
    lost_at       integer               -- when it was declared dead; null for one that lives or has retired
);

-- One row per claim: the jobs it took, 20 bytes each (id, then epoch big-endian).
create table windlass_claims (
    worker        integer not null,
    number        integer not null,
    solo          integer not null,     -- whether its one job, a suspect, runs alone
    claimed_at    integer not null,
    jobs          blob not null,
    primary key (worker, number)
) without rowid;

-- One row per failed attempt; a job has at most one per epoch.
create table windlass_attempts (
    job           blob not null,
    worker        integer not null,
    started_at    integer not null,
    ended_at      integer not null,
    epoch         integer not null,
    failure       text not null,
    primary key (job, epoch)
) without rowid;

-- A version per queue (0 is the gate of timers, -1 that of cancel requests) and writer; compared by sum.
create table windlass_gates (
    queue         integer not null,
    writer        integer not null,
    version       integer not null,
    primary key (queue, writer)
) without rowid;

-- How many jobs there are, per lane: `live` have not ended, and of these `scheduled` and `waiting` are so. Written by every
-- transaction that adds, moves or deletes jobs. Those that are running are listed in `claims`; the other live ones are ready.
create table windlass_job_counts (
    lane          integer primary key,
    live          integer not null,
    scheduled     integer not null,
    waiting       integer not null,
    done          integer not null,
    failed        integer not null,
    cancelled     integer not null
);

-- Token buckets. The level is in tokens times the microseconds of `per`, as of `level_at`.
create table windlass_rate_limits (
    id            integer primary key,
    name          text not null unique,
    rate          integer not null check (rate > 0),
    per           integer not null check (per > 0),
    burst         integer not null check (burst > 0),
    level         integer not null,
    level_at      integer not null,
    lifted        integer not null default 0
);

create table windlass_serial_keys (
    id            integer primary key,
    key           text not null unique,
    slots         integer not null default 1 check (slots > 0)
);

-- Which jobs have a slot of a serial key: those that are ready, run, or keep it while they wait.
create table windlass_serial_holders (
    serial_key    integer not null,
    job           blob not null,
    primary key (serial_key, job)
) without rowid;

-- Which jobs wait for one, in this order.
create table windlass_serial_waiting (
    serial_key    integer not null,
    serial_position integer not null,
    job           blob not null,
    primary key (serial_key, serial_position, job)
) without rowid;

-- The job that last took a unique name. Whether it still holds it is decided when another job asks for the name: nothing is
-- written here when a job changes state.
create table windlass_unique_names (
    kind          integer not null,
    name          text not null,
    job           blob not null,
    primary key (kind, name)
) without rowid;

create table windlass_paused_jobs (
    job           blob primary key,
    at            integer not null,
    author        text not null,
    note          text
) without rowid;

-- Running attempts that are asked to end, until deadline_at.
create table windlass_cancel_requests (
    job           blob primary key,
    worker        integer not null,
    epoch         integer not null,
    deadline_at   integer not null,
    author        text not null,
    note          text
) without rowid;
create index windlass_cancel_requests_worker on windlass_cancel_requests (worker);

create table windlass_audit_log (
    number        integer primary key,
    at            integer not null,
    author        text not null,
    action        text not null,
    subject       text not null,
    note          text
);
create index windlass_audit_log_subject on windlass_audit_log (subject, number);

-- Jobs submitted in transactions of others. Those transactions only append here, so a long one blocks nobody; a worker
-- admits the jobs afterwards.
create table windlass_arrivals (
    seq           integer primary key,
    id            blob not null,
    kind          text not null,
    version       integer not null default 1,
    queue         text not null default 'default',
    key           text,
    priority      integer not null default 0,
    at            integer,              -- when it is due; null for at once
    delay         integer not null default 0,  -- microseconds
    deadline_at   integer,
    parent        blob,
    tags          text,                 -- JSON array, or null for none
    options       text,                 -- JSON, or null for none
    settings      text,                 -- JSON, or null for none
    codec         integer not null default 0,
    input         blob not null,
    digest        blob,                 -- null: computed from kind and input
    stage         text
);

create table windlass_schedules (
    id            integer primary key,
    name          text not null unique,
    spec          text not null,        -- JSON
    codec         integer not null,
    input         blob not null,
    next_at       integer,              -- the first tick that is not handled; null for none
    paused_at     integer,
    paused_by     text,
    paused_note   text,
    last_job      blob
);
create index windlass_schedules_next on windlass_schedules (next_at) where next_at is not null and paused_at is null;

-- A tick of a schedule fires once.
create table windlass_schedule_firings (
    schedule      integer not null,
    tick          integer not null,
    job           blob not null,
    primary key (schedule, tick)
) without rowid;

-- One row for all ticks that a schedule missed in a row.
create table windlass_schedule_misses (
    schedule      integer not null,
    at            integer not null,     -- when that was found
    first         integer not null,
    last          integer not null,
    count         integer not null,
    at_least      integer not null,     -- whether there may be more: counting stopped
    why           text not null,
    primary key (schedule, at)
) without rowid;

-- Inboxes. A signal is deleted when a step that received it makes progress.
create table windlass_signals (
    job           blob not null,
    number        integer not null,
    name          text not null,
    at            integer not null,
    codec         integer not null,
    payload       blob not null,
    unreadable    text,                 -- why the job could not decode it; written by the commit of the attempt that found out,
                                        -- cleared when someone restores the signal
    primary key (job, number)
) without rowid;

-- Every signal that was delivered to a job that is kept, so that a repeat is recognised after the first was consumed.
create table windlass_delivered_signals (
    job           blob not null,
    name          text not null,
    dedup         text not null,
    primary key (job, name, dedup)
) without rowid;

-- Every transition of a machine.
create table windlass_transitions (
    job           blob not null,
    rev           integer not null,     -- the revision it made
    stage         text not null,        -- the stage that ran
    next          text,                 -- the stage it led to; null if it ended the job
    outcome       text not null,
    at            integer not null,
    worker        integer not null,
    primary key (job, rev)
) without rowid;

-- What the calls of a workflow did. The rows of one job are written in order and read in order.
create table windlass_journal (
    job           blob not null,
    seq           integer not null,
    call_kind            integer not null,     -- what was called, by number
    event          integer not null,     -- how far it got, by number
    at            integer not null,
    codec         integer not null,
    name          text not null,
    key           text,
    source_line   text,                 -- where in the source code it was called
    payload       blob not null,
    primary key (job, seq)
) without rowid;

create table windlass_context (
    job           blob not null,
    name          text not null,
    codec         integer not null,
    value         blob not null,
    primary key (job, name)
) without rowid;

-- A branch keeps nothing per child. Their ends are counted here, since there is one writer at a time; PostgreSQL has a table of
-- counts per writer.
create table windlass_branches (
    job           blob not null,
    number        integer not null,
    name          text not null,
    spawns        text not null,        -- JSON array: the names of its spawns
    cursor_codec  integer,
    cursor        blob,                 -- how far its sources were read
    sealed        integer not null default 0,
    spawned       integer not null default 0,  -- how many children; written by commits of the job
    started       integer not null default 0,  -- these four are written by whoever ends or revives a child
    done          integer not null default 0,
    failed        integer not null default 0,
    cancelled     integer not null default 0,
    watch         text,                 -- JSON: the counts that its job waits for; null once it was notified
    merge_record  text,                 -- JSON: how it is to be merged
    opened_at     integer not null,
    merged_at     integer,
    cancels_children integer not null default 0,  -- its live children are being cancelled
    poll          text,                 -- JSON: what the last poll found
    poll_at       integer,              -- when it is polled next
    sealed_at     integer,
    primary key (job, number)
) without rowid;
create index windlass_branches_poll on windlass_branches (poll_at) where poll_at is not null;

-- Written when a branch is opened and when it is merged; the ends of its children do not touch it.
create index windlass_branches_open on windlass_branches (job, number) where merged_at is null;

-- Tokens of clients of the HTTP API. Few rows.
create table windlass_tokens (
    id            text primary key,
    name          text not null unique,
    role          text not null,
    kinds         text not null,        -- JSON array; empty for all
    queues        text not null,        -- JSON array; empty for all
    hash          blob not null,        -- BLAKE3 of the secret, which is kept nowhere
    created_at    integer not null,
    created_by    text not null,
    expires_at    integer,
    revoked_at    integer,
    last_used_at  integer               -- written at most once a minute
) without rowid;

-- Users: people who log in. Few rows, which are never deleted.
create table windlass_users (
    name          text primary key,     -- no token has or had it: both are authors in the audit log
    role          text not null,        -- viewer, operator or admin
    password_hash text not null,        -- argon2id, as PHC text
    created_at    integer not null,
    created_by    text not null,
    disabled_at   integer,              -- null while the user may log in
    last_login_at integer
) without rowid;

-- Sessions of users. Deleted when they end, or by the pruner once they have expired.
create table windlass_sessions (
    hash          blob primary key,     -- BLAKE3 of the secret, which is kept nowhere
    user_name     text not null,
    created_at    integer not null,
    expires_at    integer not null,     -- moved on by uses
    last_used_at  integer               -- written at most once a minute
) without rowid;
create index windlass_sessions_user on windlass_sessions (user_name);
create index windlass_sessions_expires on windlass_sessions (expires_at);

-- What servers do to many jobs on behalf of people. Few rows.
create table windlass_operations (
    id            blob not null primary key,  -- a UUID v7
    action        text not null,
    filter        text not null,        -- JSON
    parameters    text not null,        -- JSON
    author        text not null,
    note          text,
    started_at    integer not null,
    updated_at    integer not null,     -- written every second by whoever runs it
    ended_at      integer,
    state         integer not null,     -- 0 running, 1 done, 2 stopped, 3 interrupted, 4 failed
    progress      text not null,        -- JSON
    stop_requested integer not null default 0,
    error         text
) without rowid;
create index windlass_operations_running on windlass_operations (id, updated_at) where ended_at is null;

-- What rules of servers find wrong: a row per rule and subject. Few rows.
create table windlass_alerts (
    rule          text not null,
    subject       text not null,
    severity      integer not null,     -- by number, as state
    state         integer not null,
    value         text not null,
    text          text not null,
    target        text not null,        -- JSON
    since         integer not null,
    fired_at      integer,
    clear_since   integer,
    resolved_at   integer,
    updated_at    integer not null,
    posted        integer not null,     -- whether the last message says that it fires
    is_open       integer not null,     -- whether rules must consider it: it is not resolved, or a message has to say so
    rev           integer not null,     -- raised by every change, which names the one that it follows
    primary key (rule, subject)
) without rowid;
create index windlass_alerts_open on windlass_alerts (rule, subject) where is_open = 1;
create index windlass_alerts_closed on windlass_alerts (updated_at) where is_open = 0;

-- Rules, and subjects of rules, about which no messages are posted. Few rows.
create table windlass_alert_mutes (
    rule          text not null,
    subject       text not null,        -- empty for all of the rule
    until_at      integer,              -- null if it does not end by itself
    muted_at      integer not null,
    author        text not null,
    note          text,
    primary key (rule, subject)
) without rowid;

-- What transactions have ended since the last roll-up: a row per transaction, lane, minute and branch, only ever added and deleted.
create table windlass_ended_batches (
    lane          integer not null,
    minute        integer not null,     -- since 1970
    parent        blob,                 -- the branch of the jobs; null for jobs in none
    branch        integer,
    done          integer not null,
    failed        integer not null,
    cancelled     integer not null,
    retried       integer not null,
    first_start_at integer,             -- of jobs in a branch, as last_end_at
    last_end_at   integer,
    times         blob not null         -- per attempt that ended a job the buckets of how long it waited and ran, a byte each
);

-- The sums of these rows, per minute, and per hour once the minute is old.
create table windlass_ended_sums (
    minutes       integer not null,     -- the length of the period: 1 or 60
    starts        integer not null,     -- its first minute since 1970
    lane          integer not null,
    done          integer not null,
    failed        integer not null,
    cancelled     integer not null,
    retried       integer not null,
    wait_times    blob not null,        -- histograms
    run_times     blob not null,
    primary key (minutes, starts, lane)
) without rowid;

-- The times of the children of branches that have ended.
create table windlass_branch_times (
    job           blob not null,
    branch        integer not null,
    first_start_at integer,
    last_end_at   integer,
    wait_times    blob not null,        -- histograms
    run_times     blob not null,
    primary key (job, branch)
) without rowid;

-- Waits for signals that have ended since the last roll-up: a row per transaction, kind, signal and day, only ever added and deleted.
create table windlass_wait_batches (
    kind          integer not null,
    signal        text not null,
    day           integer not null,     -- since 1970
    arrived       blob not null,        -- histograms: lengths of waits that the signal ended, and of those that timed out
    timed_out     blob not null
);

-- The sums of these rows, per day.
create table windlass_signal_waits (
    kind          integer not null,
    signal        text not null,
    day           integer not null,
    arrived       blob not null,
    timed_out     blob not null,
    primary key (kind, signal, day)
) without rowid;
