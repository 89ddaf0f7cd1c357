-- Branches: sets of children that a job opens, fills, seals and merges. The same tables as in PostgreSQL, but for the counts:
-- there is one writer at a time, so they stand in the branch's own row.
--
-- A child of a branch has its number in `branch`, and no round: its end is counted, and neither waited for nor told.

alter table windlass_jobs add column branch integer;   -- of a child: the branch of its parent; written at submit
alter table windlass_jobs add column spawn integer;    -- of such a child: the place of its spawn's name in the branch
alter table windlass_jobs add column item text;        -- which item of the spawn it is; empty for a spawn of one child
alter table windlass_jobs add column items integer;    -- how many children it stands for, if more than one; commit takes those
                                                       -- away that others take the place of
alter table windlass_jobs add column tallied integer;  -- how many of these have ended well and were counted; written by commit
alter table windlass_jobs add column branched integer; -- 1 if it has opened a branch; written by commit

drop index windlass_jobs_parent;
create index windlass_jobs_parent on windlass_jobs (parent, branch, id) where parent is not null;

create table windlass_branches (
    job           blob    not null,
    number        integer not null,
    name          text    not null,
    spawns        text    not null,     -- JSON array: the names of its spawns
    cursor_codec  integer,
    cursor        blob,                 -- where its sources stand
    sealed        integer not null default 0,
    spawned       integer not null default 0,   -- children, by commit of the job
    started       integer not null default 0,   -- these four by whoever ends or revives a child
    done          integer not null default 0,
    failed        integer not null default 0,
    cancelled     integer not null default 0,
    watch         text,                 -- JSON: what the job wants to be told of; null once it was
    goal          text,                 -- JSON: how it is to be merged
    opened_at     integer not null,
    merged_at     integer,
    cut           integer not null default 0,   -- whether its live children are being cancelled
    poll          text,                 -- JSON: what was seen when it was last looked at
    poll_at       integer,              -- when it is looked at next
    primary key (job, number)
) without rowid;
create index windlass_branches_poll on windlass_branches (poll_at) where poll_at is not null;
