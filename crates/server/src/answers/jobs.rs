//! Jobs: lists, one with everything, why it is in its state.

use windlass::{
    Failure, Serial, Unique, Why,
    model::{Progress, RateCharge, Settings, Unwind, wait::SignalName},
    operate::{
        AwaitedChild,
        views::{ChildList, EntryView, InboxSignal, JobList, JobView, Journal, JournalPage, MachineView},
    },
    store::{
        Attempt, CancelHold, ChildPosition, Holds, Job, Pause, RateHold, SerialHold, Summary, Transition,
        UnreadableSignalView, Waiting,
    },
};

use super::answers;

answers! {
    /// A job in a list.
    Summary {
        /// The job.
        id,
        /// Its kind.
        kind,
        /// Its kind's version.
        version,
        /// Its queue.
        queue,
        /// The caller's name for it.
        key [?],
        /// Its state.
        state,
        /// The stage it is in, if it is a machine.
        stage [?],
        /// Why it failed.
        reason [?],
        /// From -100 (most urgent) to 100 (least urgent).
        priority,
        /// Attempts that have failed.
        attempts,
        /// When it was submitted.
        submitted_at,
        /// When it is, or became, due.
        due_at,
        /// When it ended.
        finished_at [?],
    }

    /// Everything that the store has about a job.
    Job {
        summary [+],
        /// A number that is raised whenever a claim on it ends.
        epoch,
        /// How many changes were committed.
        rev,
        /// Deaths of workers that had it claimed.
        worker_deaths,
        /// Deaths of workers that ran it alone.
        solo_crashes,
        /// The worker that has it, or that wrote its last change.
        worker,
        /// When the attempt that wrote its last change had started; while running, when it was claimed.
        started_at,
        /// What its attempt last reported, while it is running.
        progress [?],
        /// When it fails if it has not ended.
        deadline_at,
        /// The job that submitted it.
        parent [?],
        /// Its position in a branch of that job.
        position [?],
        /// Its tags.
        tags,
        /// The caller's own JSON, never interpreted.
        options,
        /// Settings of this job alone.
        settings,
        /// How often each rule of the retry policy was used.
        retry_counts,
        /// The input, or its size if it is encoded.
        input,
        /// The data of the stage it is in; left out while that is its input.
        data [?],
        /// What it waits for, or waited for when it last made progress.
        wait [?],
        /// When that wait times out.
        wait_until [?],
        /// How many of the children it waits for have not ended.
        pending_children,
        /// How it ends once its undos have run, if it is being unwound.
        unwind [?],
        /// The output, or its size if it is encoded.
        output,
        /// The last error.
        failure,
        /// Which of its columns cannot be decoded, and why. The fields of those columns have their defaults, and the job fails instead of
        /// running.
        fault [?],
    }

    /// The position of a job in a branch of its parent.
    ChildPosition {
        /// The branch.
        branch,
        /// Its name.
        name,
        /// The name of the spawn that made the job.
        spawn,
        /// Which item of it; empty for a spawn of one child.
        item [?],
        /// How many items it has: more than one if it is a block.
        items,
    }

    /// One failed attempt.
    Attempt {
        /// Its claim's epoch.
        epoch,
        /// The worker that made it.
        worker,
        /// When it started (for a lost one: when it was claimed).
        started_at,
        /// When its end was written.
        ended_at,
        /// What went wrong.
        failure,
    }

    /// One transition of a machine.
    Transition {
        /// The revision it made.
        rev,
        /// The stage that ran.
        stage,
        /// The stage it led to; left out if it ended the job.
        next [?],
        /// The outcome of the step.
        outcome,
        /// When it was committed.
        at,
        /// The worker that ran it.
        worker,
    }

    /// What keeps a job from running; several may apply at once.
    Holds {
        /// It was submitted in a transaction of the caller's own, and no worker has admitted it yet.
        arriving,
        /// It is paused.
        paused [?],
        /// Its queue is paused.
        queue_paused [?],
        /// Its cancel was requested.
        cancel_requested [?],
        /// It has a serial key.
        serial [?],
        /// It is under a rate limit.
        rate [?],
        /// It is parked.
        waiting [?],
        /// Its worker died; it runs alone next time.
        suspect,
        /// How many jobs of its queue, kind and version are ahead of it in the ready set, up to 1,000.
        ahead,
    }

    /// What a parked job waits for.
    Waiting {
        /// The condition that ends the wait.
        condition,
        /// When it was parked.
        since [?],
        /// When the wait times out.
        wait_until [?],
        /// The names of signals in its inbox, each one once, by name.
        arrived,
        /// How many of the children it waits for have not ended.
        pending_children,
        /// The first 20 signals that its code could not decode, oldest first: they do not end its wait.
        unreadable [?],
    }

    /// A signal that the code of its job could not decode.
    UnreadableSignalView {
        /// Its number in the inbox.
        number,
        /// Its name.
        name,
        /// When it was delivered.
        at,
        /// The error.
        why,
    }

    /// Who paused a job or a queue, and why.
    Pause {
        /// When.
        at,
        /// Who.
        author,
        /// Why.
        note [?],
    }

    /// The cancel request of a running job.
    CancelHold {
        /// When the store ends the job without its attempt.
        deadline_at,
        /// Who requested it.
        author,
        /// Why.
        note [?],
    }

    /// A job's serial key, and its position in line.
    SerialHold {
        /// The key.
        key,
        /// How many jobs of the key run at once.
        slots,
        /// Whether the job has one of the slots.
        held,
        /// The jobs that have slots, up to 10.
        holders,
        /// How many of these are left out, because the token may not see them.
        hidden_holders [?],
        /// How many jobs are ahead of it in line, up to 1,000.
        ahead,
    }

    /// A job's rate limit, and when it can pay for the job.
    RateHold {
        /// The limit; `null` if it was lifted.
        limit,
        /// Its name.
        name,
        /// How many tokens the job costs.
        weight,
        /// When the bucket has enough tokens for it, if no other job takes them.
        affordable_at,
    }

    /// A job with its history, holds, inbox, journal and branches.
    JobView {
        job [+],
        /// Its failed attempts, oldest first.
        history,
        /// What keeps it from running.
        holds,
        machine [+],
        workflow [+],
        /// `parent$branch$spawn_item`, if it is a child in a branch.
        child_name [?],
        /// Its branches, by number.
        branches,
        now [-],
    }

    /// Jobs, newest first, with how many there are in each state.
    JobList {
        /// The number of matching jobs in each state, on all pages.
        counts,
        /// Whether there may be more than were counted. If jobs are selected by more than queue, kind, version and state, only 10,000 jobs are
        /// examined for that.
        is_capped,
        /// The jobs.
        jobs,
        /// How many items the blocks among the jobs have; of many blocks only the first are counted.
        block_items [?],
        /// The next page has the jobs before this one; `null` on the last page. A page may have few jobs or none and not be the last: a
        /// bounded number of jobs is examined for each.
        next_before,
        now [-],
    }

    /// Children of one job, oldest first.
    ChildList {
        /// The children.
        jobs,
        /// How many items the blocks among them have; of many blocks only the first are counted.
        block_items [?],
        /// The next page has the children after this one; `null` on the last page.
        next_after,
        now [-],
    }

    /// The inbox, which every job has, and transitions, which only machines have.
    MachineView {
        /// The first signals in the inbox, oldest first.
        inbox,
        /// Whether there are more.
        inbox_has_more,
        /// The last transitions, oldest first.
        last_transitions,
    }

    /// A signal in an inbox.
    InboxSignal {
        /// Its number in the inbox.
        number,
        /// Its name.
        name,
        /// When it was delivered.
        at,
        /// Its payload, or its size if it is encoded.
        payload,
        /// Why the job could not decode it.
        unreadable [?],
    }

    /// Entries of a journal, and the values of the context; both are empty if the job is no workflow.
    Journal {
        /// The entries, by position.
        journal,
        /// The values of the context, by name.
        context,
        /// How many earlier entries were left out.
        omitted [?],
        /// When the entry before the first of these was written.
        previous_at [?],
    }

    /// A page of a journal.
    JournalPage {
        /// The entries, by position.
        journal,
        /// The next page has the entries after this position; null on the last page.
        next_after,
    }

    /// An entry of a journal.
    EntryView {
        /// Its position in the journal.
        seq,
        /// What was called.
        call_kind,
        /// What happened to the call.
        event,
        /// The call's name.
        name,
        /// The call's key.
        key,
        /// Where in the code the call is.
        line,
        /// When the entry was written.
        at,
        result [+],
    }

    /// Why a job is in its state.
    Why {
        /// The job.
        job,
        /// Its state; `null` for an arrival.
        state,
        /// The cause.
        cause,
        /// The reason, in a sentence.
        because,
        /// What to do about it.
        hint,
        /// The child that it waits for, if it waits for children, and why that one is in its state. Of several, one about which somebody
        /// must do something, if there is one.
        child [?],
        /// What else holds it, once that is resolved.
        also [?],
    }

    /// A child that a job waits for.
    AwaitedChild {
        /// The child.
        job,
        /// Its kind.
        kind,
        /// Its key.
        key [?],
        /// `parent$branch$spawn_item`, if it is a child in a branch.
        name [?],
        /// Its state.
        state,
        /// Why it is in that state.
        cause,
        /// The same in a sentence.
        because,
    }

    /// An error as it is kept.
    Failure {
        /// Its class, which retry policies match and people search by: a word of the engine or of the program.
        class,
        /// What went wrong, for people.
        message,
        /// What follows from it.
        then,
        /// The error as data, if it was kept.
        detail [?],
        /// How long to wait before the next attempt, in place of the retry policy's delay.
        after [?],
    }

    /// How far an attempt has come, as it reported.
    Progress {
        /// How much is done, in the attempt's own unit.
        done,
        /// Out of how much, if that is known.
        total [?],
        /// What it is doing.
        note [?],
        /// The step of a workflow that reported it.
        step [?],
        /// When it was reported, by the worker's clock.
        at,
    }

    /// Settings of one job. A policy set here overrides the one of the job's kind.
    Settings {
        /// When failed attempts are repeated.
        retry [?],
        /// How long one attempt may run.
        timeout [?],
        /// Its unique name.
        unique [?],
        /// Its serial key.
        serial [?],
        /// The rate limit that pays for its starts.
        rate [?],
        /// The tick for which a schedule submitted it.
        tick [?],
        /// The trace it is part of, as a W3C `traceparent`.
        trace [?],
    }

    /// How a job ends once its undos have run.
    Unwind {
        /// Why it fails; left out if it is cancelled.
        reason [?],
        /// The error.
        failure,
    }

    /// The name of an awaited signal.
    SignalName {
        /// The name.
        name,
        /// Whether the step sees every signal of this name in the inbox; otherwise it sees the oldest.
        every [?],
    }

    /// Which rate limit pays for the starts of a job, and how many tokens a start costs.
    RateCharge {
        /// The limit's name.
        limit,
        /// How many tokens one start costs.
        weight,
    }

    /// A unique name, and when a job holds it.
    Unique {
        /// The name. Jobs of other kinds may hold the same one.
        key,
        /// In which states a job holds it.
        scope,
        /// How long after its submit a job holds it at most.
        within [?],
        /// What happens to a submit while another job holds it.
        conflict,
    }

    /// A serial key, and how a job uses it.
    Serial {
        /// The key. It is shared by all kinds and queues of the store.
        key,
        /// Sets how many jobs of the key run at once from now on; left out it leaves that as it is (a new key has 1 slot).
        slots [?],
        /// Whether the job keeps its slot while it waits for a retry.
        keeps_slot [?],
    }
}
