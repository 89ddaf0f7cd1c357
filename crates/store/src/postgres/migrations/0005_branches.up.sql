-- Branches: one job, many children. The same tables as in SQLite, but for how ends are counted.
--
-- Nothing of a child is kept with its parent, and the end of one touches neither the parent's row nor the branch's: it is
-- counted in the row of `tallies` that the writing connection has in the branch. Whoever has committed ends looks at the
-- sum; the last one sees all of them.
--
-- Lock order, for every statement: workers, timers, arrivals, schedules, scopes, jobs (by id), branches (by job and
-- number), serials (by id), line and holders, buckets (by id), ready, claims, gates, tallies (by job, branch and lane).

alter table jobs add column branch int8;    -- of a child: the branch of its parent; written at submit
alter table jobs add column spawn int2;     -- which spawn of the branch made it; written at submit
alter table jobs add column items int4;     -- how many children it stands for, if that is not 1; written by commit
alter table jobs add column tallied int4;   -- how many of these are counted already; written by commit
alter table jobs add column item text;      -- which item of the spawn, if it has several; written at submit
alter table jobs add column branched bool;  -- true once it has opened a branch

-- Each child is in one of them.
drop index jobs_parent;
create index jobs_parent on jobs (parent, id) where parent is not null and branch is null;
create index jobs_branch on jobs (parent, branch, id) where branch is not null;
-- Those that failed or were cancelled, which are written only when that happens.
create index jobs_bad on jobs (parent, branch, id) where branch is not null and trouble is not null;

create table branches (
    job           uuid not null,
    number        int8 not null,
    spawned       int8 not null default 0,   -- children, written with them
    opened_at     int8 not null,
    merged_at     int8,
    poll_at       int8,                 -- when it is looked at next; null if nobody waits for it
    cursor_codec  int2,
    sealed        bool not null default false,
    cut           bool not null default false,   -- its live children are being cancelled
    name          text not null,
    spawns        text,                 -- JSON array of names, or null for none
    watch         text,                 -- JSON: what the job waits to be told of
    goal          text,                 -- JSON: how it is to be merged
    poll          text,                 -- JSON: what was seen when it was last looked at
    cursor        bytea,                -- where its sources stand
    primary key (job, number)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

create index branches_poll on branches (poll_at) where poll_at is not null;

-- How the children of a branch have ended, as differences by many writers: only the sum over the lanes says something.
create table tallies (
    job           uuid not null,
    branch        int8 not null,
    started       int8 not null,        -- those that have written anything, or have ended
    done          int8 not null,
    failed        int8 not null,
    cancelled     int8 not null,
    lane          int4 not null,        -- the writer: two commits in flight must not wait for each other
    primary key (job, branch, lane)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
