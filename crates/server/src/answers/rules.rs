//! What jobs are subject to, what has ended, and what people look after: queues, workers, limits, schedules, throughput, the audit log, the
//! doctor, tokens, users.

use windlass::{
    RateLimit,
    model::{KindVersion, Schedule, Scope, calendar::Missed},
    operate::{
        doctor::Finding,
        views::{
            AuditPage, EndedView, QueueRow, ScheduleDetails, ScheduleRow, SignalWaitsRow, ThroughputRow,
            ThroughputView,
        },
    },
    store::{AuditEntry, Firing, LimitView, Miss, ScheduleView, SerialView, Serves, Token, User, WorkerView},
};

use super::answers;

answers! {
    /// A queue.
    QueueRow {
        /// Its name.
        name,
        /// How many of its jobs are ready.
        ready,
        /// How many are scheduled.
        scheduled,
        /// How many run.
        running,
        /// How many are parked.
        waiting,
        /// Since when its oldest ready job is due.
        oldest_ready,
        /// Who paused it.
        paused,
    }

    /// A worker as people see it.
    WorkerView {
        /// Its id.
        id,
        /// Its name for people.
        name,
        /// The lock file that its process holds.
        liveness_file [?],
        /// Whether it has not been declared dead or retired.
        alive,
        /// When its lease expires, or expired.
        lease_until,
        /// When it was declared dead, because it did not renew its lease or its process was gone. One that retired has no such time.
        lost_at [?],
        /// How many claims are recorded for it.
        claims,
        /// The queues and kinds that it serves.
        serves,
    }

    /// A rate limit as people see it.
    LimitView {
        limit [+],
        /// Whether it was lifted: jobs need no tokens.
        lifted,
        /// The tokens in its bucket now.
        tokens,
        /// How many jobs wait for it, up to 10,000.
        waiting,
    }

    /// A serial key as people see it.
    SerialView {
        /// The key.
        key,
        /// How many run at once.
        slots,
        /// How many have a slot.
        held,
        /// How many wait in line, up to 10,000.
        waiting,
    }

    /// A queue that a worker serves.
    Serves {
        /// The queue.
        queue,
        /// The number of its jobs that the worker runs at once.
        slots,
        /// The kinds and versions.
        kinds,
    }

    /// A named limit on how fast jobs are started.
    RateLimit {
        /// Its name.
        name,
        /// How many tokens it gains…
        rate,
        /// …in this time.
        per,
        /// How many it holds at most: how many may start at once after a pause.
        burst,
    }

    /// Which code runs a job.
    KindVersion {
        /// The kind's name.
        kind,
        /// Its version, counted from 1.
        version,
    }

    /// A schedule as people see it.
    ScheduleView {
        schedule [+],
        /// When it fires next, unless it is paused.
        next_at,
        /// Whether it is paused.
        paused [?],
        /// The job it submitted last.
        last_job [?],
    }

    /// A job that a schedule submitted.
    Firing {
        /// The tick, or when it was triggered.
        tick,
        /// The job.
        job,
    }

    /// Ticks that a schedule missed.
    Miss {
        /// When this was recorded.
        at,
        missed [+],
        /// Why.
        why,
    }

    /// A schedule, with its calendar as text and its input.
    ScheduleRow {
        view [+],
        /// Its calendar as people write it.
        calendar_text,
        /// The input of its jobs, or its size if it is encoded.
        input,
    }

    /// One schedule, with its latest firings and the ticks that it missed, newest first.
    ScheduleDetails {
        row [+],
        /// What it fired.
        firings,
        /// What it missed, and why.
        misses,
        now [-],
    }

    /// A calendar, and the job to submit at each of its ticks.
    Schedule {
        /// Its name, unique in the store.
        name,
        /// When it ticks.
        calendar,
        /// What happens to a tick while the job of the previous tick has not ended.
        overlap,
        /// What happens to ticks that passed while no worker was running.
        catch_up,
        /// Which code runs its jobs.
        kind,
        /// The queue of its jobs.
        queue,
        /// Their priority.
        priority,
        /// Their tags.
        tags [?],
        /// Their settings.
        settings,
        /// The stage they start in, if they are machines.
        stage [?],
        input [-],
    }

    /// A summary of missed ticks.
    Missed {
        /// The first of them.
        from,
        /// The last of them.
        to,
        /// How many.
        count,
        /// Whether there may be more, because counting stopped.
        at_least,
    }

    /// What ended in a span of time.
    ThroughputView {
        /// When the span begins: the beginning of a minute or hour.
        from,
        /// When it ends: the store's clock.
        until,
        /// The rows, in order. A minute, an hour or a kind in which nothing ended has none.
        rows,
        /// Everything together.
        total,
    }

    /// What ended in a minute or an hour, or of a queue and kind.
    ThroughputRow {
        /// When the minute or hour began.
        starts_at [?],
        /// How many minutes it sums up: 60 also where single minutes are no longer kept.
        minutes [?],
        /// The queue.
        queue [?],
        /// The kind.
        kind [?],
        ended [+],
    }

    /// Ends of jobs, and their times.
    EndedView {
        /// How many jobs are done.
        done,
        /// How many failed.
        failed,
        /// How many were cancelled.
        cancelled,
        /// How many attempts failed and were followed by another one.
        retried,
        /// How long jobs waited from when they were due until the attempt started that ended them.
        wait,
        /// How long that attempt ran.
        run,
    }

    /// How long jobs of a kind wait for a signal.
    SignalWaitsRow {
        /// The kind of the jobs.
        kind,
        /// The signal.
        signal,
        /// The waits that the signal ended.
        arrived,
        /// How many waits timed out without it.
        timed_out,
    }

    /// An entry of the audit log.
    AuditEntry {
        /// Its number.
        number,
        /// When.
        at,
        /// Who.
        author,
        /// What was done.
        action,
        /// To what: a job's id, a queue, a limit.
        subject,
        /// Why.
        note [?],
    }

    /// Entries of the audit log, newest first.
    AuditPage {
        /// The entries.
        entries,
        /// The next page has the entries before this number; `null` on the last page.
        next_before,
        now [-],
    }

    /// What one check found.
    Finding {
        /// Whether it is as it should be.
        verdict,
        /// What was checked, as a word that stays the same.
        what,
        /// What was found.
        found,
        /// What to do about it, or where to read more.
        advice [?],
        /// The numbers behind it, by name.
        numbers [?],
    }

    /// A token as people see it: without the hash.
    Token {
        /// Its id.
        id,
        /// Its name.
        name,
        /// What it may do.
        role,
        scope [+],
        /// When it was created.
        created_at,
        /// Who created it.
        created_by,
        /// When it stops working.
        expires_at,
        /// When it was revoked.
        revoked_at,
        /// When it was last used, to the minute.
        last_used_at,
    }

    /// A user as people see it: without the hash of the password.
    User {
        /// The name.
        name,
        /// What the user may do.
        role,
        /// When the user was created.
        created_at,
        /// Who created the user.
        created_by,
        /// When the user was disabled; `null` if the user may log in.
        disabled_at,
        /// When the user last logged in.
        last_login_at,
    }

    /// To which jobs a token is limited. An empty list sets no limit.
    Scope {
        /// The kinds of the jobs.
        kinds,
        /// The queues of the jobs.
        queues,
    }
}
