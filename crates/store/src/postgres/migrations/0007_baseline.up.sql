-- The schema of the store. SQLite has the same tables; differences are noted where they occur.
--
-- Times are microseconds since 1970. `moment()` makes them readable: select id, moment(due_at) from jobs.
--
-- A live job (state 0) is in exactly one place, and that place is its state:
--   scheduled  a row of `timers` with purpose 0
--   ready      a row of `ready`; or a row of `serial_waiting`, while it waits for its serial key; or `hold` is 2: it is paused
--              or being cancelled
--   running    its id and current epoch are in a row of `claims`
--   waiting    `parked` is 1; a timeout of the wait is a row of `timers`
-- A claim writes no row per job: it deletes the ready rows and inserts one row into `claims` for the whole batch. Every
-- statement that takes a job out of a claim, other than a commit that continues it, raises the job's epoch.
--
-- Lock order, for every transaction: workers, timers, arrivals, schedules, unique_names, jobs (by id), branches (by job and
-- number), serial_keys (by id), serial_waiting and serial_holders, rate_limits (by id), ready, claims, gates, branch_counts (by
-- job, branch and writer), lane_periods and job_counts (by lane and writer).

create table meta (
    one           int4 primary key check (one = 1),
    version       int4 not null,        -- of this schema; written by migrations
    oldest        int4 not null         -- the oldest binary that may use it
);

create function moment(micros int8) returns timestamptz language sql immutable parallel safe
    return to_timestamp(micros / 1000000) + (micros % 1000000) * interval '1 microsecond';

create table queues (
    id            int4 generated always as identity primary key,
    name          text not null unique,
    paused_at     int8,                 -- set while nothing may be claimed from it
    paused_by     text,
    paused_note   text
);

create table kinds (
    id            int4 generated always as identity primary key,
    name          text not null unique
);

-- A lane is what a claim scans: the jobs of one queue, kind, version and rate limit. Lane -n holds the suspects of lane n.
create table lanes (
    id            int4 generated always as identity primary key,
    queue         int4 not null references queues (id),
    kind          int4 not null references kinds (id),
    version       int4 not null,
    rate_limit    int4 not null default 0,   -- 0 for none
    constraint lanes_name unique (queue, kind, version, rate_limit)
);

-- No index, and no predicate of one, names a column that changes while a job succeeds: its commit stays on the row's page
-- (a HOT update). That is why `unsuccessful_state` repeats `state`. Columns are ordered by size, so that rows have no padding.
create table jobs (
    id            uuid not null primary key,
    parent        uuid,                 -- the job that submitted it
    submitted_at  int8 not null,
    due_at        int8 not null,        -- its rank is this plus its priority's share; written by submit, commit
    deadline_at   int8,
    worker        int8,                 -- who wrote the last change
    started_at    int8,
    finished_at   int8,
    serial_key    int8,
    serial_position int8,               -- its place among the jobs of that key: when it first was due
    wait_until    int8,                 -- when the wait ends whatever has come
    parked_at     int8,                 -- when it was parked last
    branch        int8,                 -- of a child: the branch of its parent; written at submit
    rev_claim     int8,                 -- the number of the claim that wrote rev; goes with `worker` and `rev_epoch`
    lane          int4 not null,        -- written at submit
    kind          int4 not null,        -- written at submit
    epoch         int4 not null default 0,  -- raised whenever a claim of the job ends, but by its own last commit
    rev           int4 not null default 0,  -- raised by commits only
    rev_epoch     int4 not null default -1,  -- the epoch that wrote rev
    attempts      int4 not null default 0,  -- failed attempts; written by commit
    rate_weight   int4,                 -- tokens of its lane's rate limit that a start costs
    stage_rev     int4 not null default 0,  -- the revision that led to the stage
    steps_since_wait int4 not null default 0,
    wait_needs    int4,                 -- how many of these names must have a signal
    pending_children int4 not null default 0,  -- children submitted by revision stage_rev that have not ended
    parent_rev    int4,                 -- of a child: the revision of its parent that submitted it; -1 if its end is a signal
    item_count    int4,                 -- how many children it represents, if not 1; written by commit
    items_counted int4,                 -- how many of these are counted already; written by commit
    priority      int2 not null,        -- written at submit
    state         int2 not null default 0,  -- 0 live, 1 done, 2 failed, 3 cancelled
    codec         int2 not null,
    worker_deaths int2 not null default 0,  -- workers that died while they had it claimed; written by reap
    solo_crashes  int2 not null default 0,  -- workers that died while they ran it alone; written by reap
    unsuccessful_state int2,            -- the state again if it failed or was cancelled
    reason        int2,
    output_codec  int2,
    hold          int2,                 -- 1: to be held when it would next be ready; 2: held
    data_codec    int2,
    parked        int2,                 -- 1 while it is parked; 0 once it was woken: its timer is void
    spawn         int2,                 -- which spawn of the branch made it; written at submit
    suspect       bool not null default false,  -- set by reap, cleared by commit
    keeps_slot    bool,                 -- whether it keeps its serial slot while it waits for another attempt
    has_undo      bool,                 -- true once there is something to undo; false from when someone has it undone from
                                        -- outside: the deadline of the job is void then
    has_branches  bool,                 -- true once it has opened a branch
    digest        bytea not null,
    input         bytea not null,
    key           text collate "C",     -- lists find it by its beginning
    tags          text,                 -- JSON array, or null for none
    options       text,
    settings      text,                 -- JSON, or null for none
    retry_counts  text,                 -- JSON array: how much of each retry rule is used; null for none; written by commit
    failure       text,                 -- JSON of the last error
    output        bytea,
    stage         text,                 -- of a machine; written at submit, by commit
    data          bytea,                -- the data of the stage; null while that is the input
    wait          text,                 -- JSON: what it waits for, or waited for when it last made progress
    wait_names    text[],               -- the names of the signals it waits for; null if it waits for children
    unwind        text,                 -- JSON: how it ends once that is undone; written by commit, and by whoever ends it
    item          text collate "C",     -- which item of the spawn, if it has several; written at submit
    error_class   text,                 -- of an unsuccessful job: the class of its error, as it stands in the JSON
    unsuccessful_stage text             -- the stage again, likewise
) with (fillfactor = 50);

create unique index jobs_key on jobs (kind, key) where key is not null;
create index jobs_unsuccessful on jobs (unsuccessful_state, id) where unsuccessful_state is not null;

-- Each child is in one of these two.
create index jobs_parent on jobs (parent, id) where parent is not null and branch is null;
create index jobs_branch on jobs (parent, branch, id) where branch is not null;
create index jobs_item on jobs (branch, parent, spawn, (coalesce(item, ''))) where branch is not null;
create index jobs_branch_unsuccessful on jobs (parent, branch, id) where branch is not null and unsuccessful_state is not null;

-- Lists of jobs. What has no index here is found through one of these, or among all jobs.
create index jobs_error_class on jobs (error_class, id) where error_class is not null;
create index jobs_unsuccessful_stage on jobs (unsuccessful_stage, id) where unsuccessful_stage is not null;

-- In which periods (16 ms, by the times in ids) jobs of a lane were submitted: a row may be left over, but none is missing. It takes the
-- place of an index of jobs by lane, which would cost each job what this costs each transaction that submits some.
create table lane_periods (
    period        int8 not null,
    lane          int4 not null,
    writer        int4 not null,        -- two submits in flight must not wait for each other
    primary key (lane, period, writer)
);

-- Parked jobs by stage: an index of jobs would name columns that every wait changes. Written under the lock of the job.
create table parked_jobs (
    stage         text not null,        -- empty for a job without one
    job           uuid not null,
    primary key (stage, job)
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000);

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
    purpose       int2 not null,        -- 0 wake, 1 deadline, 2 end of a cancel's grace
    primary key (due_at, job, purpose)
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000);

create table workers (
    id            int8 primary key,
    lease_until   int8 not null,
    lost_at       int8,                 -- when it was declared dead; null for one that lives or has retired
    status        int2 not null default 0,   -- 0 alive, 1 dead with claims to return, 2 gone
    name          text not null,
    liveness_file text,                 -- the lock file that its process holds while it lives
    serves        text not null default '[]', -- JSON: which queues, with how many slots and which kinds
    progress      text,                 -- JSON: what its attempts last reported; written by renew
    token         text                  -- the token with which a server registered it; null for a process with access to this database
) with (fillfactor = 50);

-- One row per claim: the jobs it took and their epochs.
create table claims (
    worker        int8 not null,
    number        int8 not null,
    claimed_at    int8 not null,
    solo          bool not null,        -- whether its one job, a suspect, runs alone
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

-- A version per queue (0 is the gate of timers, -1 that of cancel requests) and writer; compared by sum.
create table gates (
    queue         int4 not null,
    writer        int8 not null,
    version       int8 not null,
    primary key (queue, writer)
) with (fillfactor = 50);

-- How many jobs there are, per lane, as differences by many writers: only their sum means something. `live` have not ended, and of these
-- `scheduled` and `waiting` are so. Written by every transaction that adds, moves or deletes jobs. Those that are running are listed in
-- `claims`; the other live ones are ready.
create table job_counts (
    live          int8 not null,
    scheduled     int8 not null,
    waiting       int8 not null,
    done          int8 not null,
    failed        int8 not null,
    cancelled     int8 not null,
    lane          int4 not null,
    writer        int4 not null,        -- two commits in flight must not wait for each other
    primary key (lane, writer)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Token buckets. The level is in tokens times the microseconds of `per`, as of `level_at`.
create table rate_limits (
    id            int4 generated always as identity primary key,
    name          text not null unique,
    rate          int8 not null check (rate > 0),
    per           int8 not null check (per > 0),
    burst         int8 not null check (burst > 0),
    level         int8 not null,
    level_at      int8 not null,
    lifted        bool not null default false
) with (fillfactor = 50);

create table serial_keys (
    id            int8 generated always as identity primary key,
    key           text not null unique,
    slots         int4 not null default 1 check (slots > 0)
);

-- Which jobs have a slot of a serial key: those that are ready, run, or keep it while they wait.
create table serial_holders (
    serial_key    int8 not null,
    job           uuid not null,
    primary key (serial_key, job)
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000);

-- Which jobs wait for one, in this order.
create table serial_waiting (
    serial_key    int8 not null,
    serial_position int8 not null,
    job           uuid not null,
    primary key (serial_key, serial_position, job)
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000);

-- The job that last took a unique name. Whether it still holds it is decided when another job asks for the name: nothing is
-- written here when a job changes state.
create table unique_names (
    kind          int4 not null,
    name          text not null,
    job           uuid not null,
    primary key (kind, name)
);

create table paused_jobs (
    job           uuid primary key,
    at            int8 not null,
    author        text not null,
    note          text
);

-- Running attempts that are asked to end, until deadline_at.
create table cancel_requests (
    job           uuid primary key,
    worker        int8 not null,
    epoch         int4 not null,
    deadline_at   int8 not null,
    author        text not null,
    note          text
);
create index cancel_requests_worker on cancel_requests (worker);

create table audit_log (
    number        int8 generated always as identity primary key,
    at            int8 not null,
    author        text not null,
    action        text not null,
    subject       text not null,
    note          text
);
create index audit_log_subject on audit_log (subject, number);

-- Jobs submitted in transactions of others. Those transactions only append here, so a long one blocks nobody; a worker
-- admits the jobs afterwards.
create table arrivals (
    seq           int8 generated always as identity primary key,
    id            uuid not null,
    kind          text not null,
    version       int4 not null default 1,
    queue         text not null default 'default',
    key           text,
    priority      int2 not null default 0,
    at            int8,                 -- when it is due; null for at once
    delay         int8 not null default 0,   -- microseconds
    deadline_at   int8,
    parent        uuid,
    tags          text,                 -- JSON array, or null for none
    options       text,                 -- JSON, or null for none
    settings      text,                 -- JSON, or null for none
    codec         int2 not null default 0,
    input         bytea not null,
    digest        bytea,                -- null: computed from kind and input
    stage         text
);

-- Submits a job from SQL, in the caller's transaction, and returns its id. What this function cannot check (the payload
-- limit, whether the rate limit exists, whether the key is taken) is checked when the job is admitted: it fails or is
-- cancelled, with the reason.
create function submit(
    kind          text,
    input         jsonb default 'null',
    queue         text default 'default',
    key           text default null,
    priority      int4 default 0,
    at            timestamptz default null,
    delay         interval default null,
    deadline      timestamptz default null,
    tags          text[] default null,
    options       jsonb default null,
    serial        text default null,    -- a serial key
    unique_key    text default null,    -- a unique name; a live job that holds it is kept, and this one is not inserted
    rate          text default null,    -- a rate limit
    weight        int4 default 1,
    version       int4 default 1,
    settings      jsonb default null,   -- all other policies, as the engine writes them
    id            uuid default null     -- made if it is not given; give one to be able to repeat the call
) returns uuid language plpgsql security definer set search_path from current as $$
declare
    named    text;
    part     text;
    policies jsonb := coalesce(settings, '{}');
    made     uuid := id;
    bytes    bytea;
begin
    foreach part in array array['kind', 'queue'] loop
        named := case part when 'kind' then kind else queue end;
        if named is null or named = '' then
            raise exception 'the % is empty; give it a name', part using errcode = '22023';
        elsif octet_length(named) > 128 then
            raise exception 'the % % is longer than 128 bytes; choose a shorter name', part, left(named, 40) using errcode = '22023';
        elsif named ~ '[[:space:][:cntrl:]$]' then
            raise exception 'the % "%" contains a space, a control character or $; choose another name', part, named using errcode = '22023';
        elsif starts_with(named, 'windlass.') then
            raise exception 'the % "%" begins with "windlass.", which is reserved for the engine; choose another name', part, named using errcode = '22023';
        end if;
    end loop;
    if priority not between -100 and 100 then
        raise exception 'priority % is out of range; use one from -100 (urgent) to 100 (least urgent)', priority using errcode = '22023';
    elsif version < 1 then
        raise exception 'version % is not positive; count versions from 1', version using errcode = '22023';
    elsif key = '' or octet_length(key) > 512 then
        raise exception 'the key is empty or longer than 512 bytes; leave it out, or use a hash of it' using errcode = '22023';
    elsif delay < interval '0' then
        raise exception 'the delay % is negative; leave it out to have the job run at once', delay using errcode = '22023';
    elsif weight < 1 then
        raise exception 'the weight % is not positive; give it one from 1 to the limit''s burst', weight using errcode = '22023';
    end if;
    if made is null then
        bytes := overlay(uuid_send(gen_random_uuid())
                         placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::int8) from 3)
                         from 1 for 6);
        bytes := set_byte(bytes, 6, (get_byte(bytes, 6) & 15) | 112);
        made := encode(bytes, 'hex')::uuid;
    end if;
    if serial is not null then
        policies := policies || jsonb_build_object('serial', jsonb_build_object('key', serial));
    end if;
    if unique_key is not null then
        policies := policies || jsonb_build_object('unique', jsonb_build_object(
            'key', unique_key, 'scope', jsonb_build_array('scheduled', 'ready', 'running', 'waiting')));
    end if;
    if rate is not null then
        policies := policies || jsonb_build_object('rate', jsonb_build_object('limit', rate, 'weight', weight));
    end if;
    insert into arrivals (id, kind, version, queue, key, priority, at, delay, deadline_at, tags, options, settings, input)
    values (made, kind, version, queue, key, priority, (extract(epoch from at) * 1000000)::int8,
            coalesce((extract(epoch from delay) * 1000000)::int8, 0), (extract(epoch from deadline) * 1000000)::int8,
            to_jsonb(tags)::text, options::text, nullif(policies, '{}')::text, convert_to(coalesce(input, 'null')::text, 'UTF8'));
    return made;
end $$;

-- It runs with the rights of the owner. PostgreSQL searches temporary schemas first unless the path names them: a temporary
-- table of the caller's must not take the place of `arrivals`.
do $$ begin
    execute format('alter function submit set search_path = %I, pg_temp', current_schema());
end $$;

create table schedules (
    id            int4 generated always as identity primary key,
    name          text not null unique,
    spec          text not null,        -- JSON
    codec         int2 not null,
    input         bytea not null,
    next_at       int8,                 -- the first tick that is not handled; null for none
    paused_at     int8,
    paused_by     text,
    paused_note   text,
    last_job      uuid
) with (fillfactor = 50);
create index schedules_next on schedules (next_at) where next_at is not null and paused_at is null;

-- A tick of a schedule fires once.
create table schedule_firings (
    schedule      int4 not null,
    tick          int8 not null,
    job           uuid not null,
    primary key (schedule, tick)
);

-- One row for all ticks that a schedule missed in a row.
create table schedule_misses (
    schedule      int4 not null,
    at            int8 not null,        -- when that was found
    first         int8 not null,
    last          int8 not null,
    count         int8 not null,
    at_least      bool not null,        -- whether there may be more: counting stopped
    why           text not null,
    primary key (schedule, at)
);

-- Inboxes. A signal is deleted when a step that received it makes progress.
create table signals (
    job           uuid not null,
    number        int8 not null generated always as identity,
    name          text not null,
    at            int8 not null,
    codec         int2 not null,
    payload       bytea not null,
    unreadable    text,                 -- why the job could not decode it; written by the commit of the attempt that found out,
                                        -- cleared when someone restores the signal
    primary key (job, number)
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000);

-- Every signal that was delivered to a job that is kept, so that a repeat is recognised after the first was consumed.
create table delivered_signals (
    job           uuid not null,
    name          text not null,
    dedup         text not null,
    primary key (job, name, dedup)
);

-- Every transition of a machine.
create table transitions (
    job           uuid not null,
    rev           int4 not null,        -- the revision it made
    stage         text not null,        -- the stage that ran
    next          text,                 -- the stage it led to; null if it ended the job
    outcome       text not null,
    at            int8 not null,
    worker        int8 not null,
    primary key (job, rev)
);

-- What the calls of a workflow did. The rows of one job are written in order and read in order.
create table journal (
    job           uuid not null,
    seq           int4 not null,
    call_kind            int2 not null,        -- what was called, by number
    event          int2 not null,        -- how far it got, by number
    at            int8 not null,
    codec         int2 not null,
    name          text not null,
    key           text,
    source_line   text,                 -- where in the source code it was called
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

-- A branch keeps nothing per child, and the end of a child touches neither the parent's row nor the branch's: it is counted in
-- the row of `branch_counts` that belongs to the writing connection. Whoever committed ends then reads the sum; the last one
-- sees all of them. (SQLite has one writer at a time, and its counts are columns of `branches`.)
create table branches (
    job           uuid not null,
    number        int8 not null,
    spawned       int8 not null default 0,   -- how many children; written with them
    opened_at     int8 not null,
    merged_at     int8,
    poll_at       int8,                 -- when it is polled next; null if nobody waits for it
    sealed_at     int8,
    cursor_codec  int2,
    sealed        bool not null default false,
    cancels_children bool not null default false,   -- its live children are being cancelled
    name          text not null,
    spawns        text,                 -- JSON array of names, or null for none
    watch         text,                 -- JSON: the counts that its job waits for
    merge_record  text,                 -- JSON: how it is to be merged
    poll          text,                 -- JSON: what the last poll found
    cursor        bytea,                -- how far its sources were read
    primary key (job, number)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

create index branches_poll on branches (poll_at) where poll_at is not null;

-- Written when a branch is opened and when it is merged; the ends of its children do not touch it.
create index branches_open on branches (job, number) where merged_at is null;

-- How the children of a branch ended, as differences by many writers: only their sum means something.
create table branch_counts (
    job           uuid not null,
    branch        int8 not null,
    started       int8 not null,        -- those that have committed anything, or have ended
    done          int8 not null,
    failed        int8 not null,
    cancelled     int8 not null,
    writer        int4 not null,        -- two commits in flight must not wait for each other
    primary key (job, branch, writer)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Tokens of clients of the HTTP API. Few rows.
create table tokens (
    id            text primary key,
    name          text not null unique,
    role          text not null,
    kinds         text not null,        -- JSON array; empty for all
    queues        text not null,        -- JSON array; empty for all
    hash          bytea not null,       -- BLAKE3 of the secret, which is kept nowhere
    created_at    int8 not null,
    created_by    text not null,
    expires_at    int8,
    revoked_at    int8,
    last_used_at  int8                  -- written at most once a minute
);

-- Users: people who log in. Few rows, which are never deleted.
create table users (
    name          text primary key,     -- no token has or had it: both are authors in the audit log
    role          text not null,        -- viewer, operator or admin
    password_hash text not null,        -- argon2id, as PHC text
    created_at    int8 not null,
    created_by    text not null,
    disabled_at   int8,                 -- null while the user may log in
    last_login_at int8
);

-- Sessions of users. Deleted when they end, or by the pruner once they have expired.
create table sessions (
    hash          bytea primary key,    -- BLAKE3 of the secret, which is kept nowhere
    user_name     text not null,
    created_at    int8 not null,
    expires_at    int8 not null,        -- moved on by uses
    last_used_at  int8                  -- written at most once a minute
);
create index sessions_user on sessions (user_name);
create index sessions_expires on sessions (expires_at);

-- What servers do to many jobs on behalf of people. Few rows.
create table operations (
    id            uuid primary key,     -- a UUID v7
    action        text not null,
    filter        text not null,        -- JSON
    parameters    text not null,        -- JSON
    author        text not null,
    note          text,
    started_at    int8 not null,
    updated_at    int8 not null,        -- written every second by whoever runs it
    ended_at      int8,
    state         int2 not null,        -- 0 running, 1 done, 2 stopped, 3 interrupted, 4 failed
    progress      text not null,        -- JSON
    stop_requested bool not null default false,
    error         text
) with (fillfactor = 50);
create index operations_running on operations (id) where ended_at is null;

-- What rules of servers find wrong: a row per rule and subject. Few rows.
create table alerts (
    since         int8 not null,
    fired_at      int8,
    clear_since   int8,
    resolved_at   int8,
    updated_at    int8 not null,
    rev           int8 not null,        -- raised by every change, which names the one that it follows
    severity      int2 not null,        -- by number, as state
    state         int2 not null,
    posted        bool not null,        -- whether the last message says that it fires
    is_open       bool not null,        -- whether rules must consider it: it is not resolved, or a message has to say so
    rule          text not null,
    subject       text not null,
    value         text not null,
    text          text not null,
    target        text not null,        -- JSON
    primary key (rule, subject)
);
create index alerts_open on alerts (rule collate "C", subject collate "C") where is_open;
create index alerts_closed on alerts (updated_at) where not is_open;

-- Rules, and subjects of rules, about which no messages are posted. Few rows.
create table alert_mutes (
    until_at      int8,                 -- null if it does not end by itself
    muted_at      int8 not null,
    rule          text not null,
    subject       text not null,        -- empty for all of the rule
    author        text not null,
    note          text,
    primary key (rule, subject)
);

-- What transactions have ended since the last roll-up: a row per transaction, lane, minute and branch, only ever added and deleted. Without
-- an index: a roll-up takes all rows. Vacuum does not truncate it, which would lock out those who add.
create table ended_batches (
    parent        uuid,                 -- the branch of the jobs; null for jobs in none
    branch        int8,
    first_start_at int8,                -- of jobs in a branch, as last_end_at
    last_end_at   int8,
    lane          int4 not null,
    minute        int4 not null,        -- since 1970
    done          int4 not null,
    failed        int4 not null,
    cancelled     int4 not null,
    retried       int4 not null,
    times         int2[]                -- per attempt that ended a job the buckets of how long it waited and ran, in one number
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, vacuum_truncate = off);

-- Compressing buckets costs more than the bytes it saves.
alter table ended_batches alter column times set storage external;

-- The sums of these rows, per minute, and per hour once the minute is old.
create table ended_sums (
    done          int8 not null,
    failed        int8 not null,
    cancelled     int8 not null,
    retried       int8 not null,
    starts        int4 not null,        -- the first minute of the period since 1970
    lane          int4 not null,
    minutes       int2 not null,        -- its length: 1 or 60
    wait_times    bytea not null,       -- histograms
    run_times     bytea not null,
    primary key (minutes, starts, lane)
) with (fillfactor = 70);

-- The times of the children of branches that have ended.
create table branch_times (
    job           uuid not null,
    branch        int8 not null,
    first_start_at int8,
    last_end_at   int8,
    wait_times    bytea not null,       -- histograms
    run_times     bytea not null,
    primary key (job, branch)
) with (fillfactor = 70);

-- Waits for signals that have ended since the last roll-up: a row per transaction, kind, signal and day, only ever added and deleted.
create table wait_batches (
    kind          int4 not null,
    day           int4 not null,        -- since 1970
    signal        text not null,
    arrived       int2[] not null,      -- the buckets of waits that the signal ended, and of those that timed out
    timed_out     int2[] not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, vacuum_truncate = off);

-- The sums of these rows, per day.
create table signal_waits (
    kind          int4 not null,
    day           int4 not null,
    signal        text not null,
    arrived       bytea not null,       -- histograms
    timed_out     bytea not null,
    primary key (kind, signal, day)
) with (fillfactor = 70);
