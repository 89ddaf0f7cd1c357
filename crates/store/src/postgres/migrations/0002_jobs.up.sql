-- Identity, flow control, schedules and operator control. The same tables as in SQLite.
--
-- A live job is now in one place more than before: the line of its serial key. Jobs that are set aside (paused, or told
-- to end) are in none; their `hold` says so. All of them count as ready, and none of them is walked by a claim.
--
-- Lock order, for every statement: workers, timers, arrivals, schedules, scopes, jobs (by id), serials (by id), line and
-- holders, buckets (by id), ready, claims, gates.

alter table queues
    add column paused_at int8,          -- set while nothing is claimed from it
    add column paused_by text,
    add column paused_note text;

alter table workers
    add column serves text not null default '[]';   -- JSON: which queues, with how many slots and which kinds

-- Named token buckets. The level is in tokens times the microseconds of `per`, as of `at`.
create table buckets (
    id            int4 generated always as identity primary key,
    name          text not null unique,
    rate          int8 not null check (rate > 0),
    per           int8 not null check (per > 0),
    burst         int8 not null check (burst > 0),
    level         int8 not null,
    at            int8 not null,
    lifted        bool not null default false
) with (fillfactor = 50);

-- Jobs under a rate limit have lanes of their own, which a claim walks as far as their bucket pays for them.
alter table lanes add column bucket int4 not null default 0;   -- 0 is none
alter table lanes drop constraint lanes_queue_kind_version_key;
alter table lanes add constraint lanes_name unique (queue, kind, version, bucket);

alter table jobs
    add column parent uuid,             -- the job that submitted it
    add column serial int8,             -- its serial key
    add column place int8,              -- its place in that key's line: when it first was due
    add column weight int4,             -- what a start costs of its lane's bucket
    add column hold int2,               -- 1 to be set aside when it would next be ready, 2 set aside
    add column keeps bool;              -- whether it keeps its slot while it waits for another attempt

create index jobs_parent on jobs (parent, id) where parent is not null;

create table serials (
    id            int8 generated always as identity primary key,
    key           text not null unique,
    slots         int4 not null default 1 check (slots > 0)
);

-- Who has a slot of a serial key: jobs that are ready, run, or keep it while they wait.
create table holders (
    serial        int8 not null,
    job           uuid not null,
    primary key (serial, job)
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000);

-- Who waits for one, by place.
create table line (
    serial        int8 not null,
    place         int8 not null,
    job           uuid not null,
    primary key (serial, place, job)
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000);

-- The job that last took a unique name. Whether it has it still is seen when someone asks for the name: nothing is
-- written when a job moves.
create table scopes (
    kind          int4 not null,
    key           text not null,
    job           uuid not null,
    primary key (kind, key)
);

-- Why a job is held; a row per paused job, and one per running job that was told to end.
create table pauses (
    job           uuid primary key,
    at            int8 not null,
    author        text not null,
    note          text
);

create table orders (
    job           uuid primary key,
    worker        int8 not null,
    epoch         int4 not null,
    deadline_at   int8 not null,
    author        text not null,
    note          text
);
create index orders_worker on orders (worker);

create table audit (
    number        int8 generated always as identity primary key,
    at            int8 not null,
    author        text not null,
    action        text not null,
    subject       text not null,
    note          text
);
create index audit_subject on audit (subject, number);

-- Jobs submitted in transactions of others: only appended there, so that a long transaction holds up nobody; put in
-- by the next worker that looks.
create table arrivals (
    seq           int8 generated always as identity primary key,
    id            uuid not null,
    kind          text not null,
    version       int4 not null default 1,
    queue         text not null default 'default',
    key           text,
    priority      int2 not null default 0,
    at            int8,                 -- microseconds since 1970; null is at once
    delay         int8 not null default 0,   -- microseconds
    deadline_at   int8,
    parent        uuid,
    tags          text,                 -- JSON array, or null for none
    options       text,                 -- JSON, or null for none
    settings      text,                 -- JSON, or null for none
    codec         int2 not null default 0,
    input         bytea not null,
    digest        bytea                 -- null: made from kind and input
);

-- Submits a job from SQL, in the transaction of whoever calls it; answers its id. What it cannot know (the payload limit,
-- whether the rate limit is there, whether the key is taken) is seen when the job is put in: it fails, or is cancelled,
-- with the reason.
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
    unique_key    text default null,    -- a name that one job has until it ends; the job that has it is kept
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
            'key', unique_key, 'scope', jsonb_build_array('scheduled', 'ready', 'running')));
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

-- Every firing of a schedule: a tick fires once.
create table firings (
    schedule      int4 not null,
    tick          int8 not null,
    job           uuid not null,
    primary key (schedule, tick)
);

-- One row for all ticks that a schedule missed at a time.
create table misses (
    schedule      int4 not null,
    at            int8 not null,        -- when that was seen
    first         int8 not null,
    last          int8 not null,
    count         int8 not null,
    at_least      bool not null,        -- whether counting was given up
    why           text not null,
    primary key (schedule, at)
);
