//! What random sequences consist of: calls, and drafts of the jobs and changes that they pass.
//!
//! An op names jobs, workers and earlier calls by small numbers, which `requests` resolves. There are few ids, keys,
//! queues and kinds, so that calls often concern the same ones. Epochs and revisions come from earlier claims, some of them
//! long outdated: a sequence uses only what a worker could know.

/// How many job ids there are.
pub const IDS: u8 = 28;

/// One call, or an advance of the clock.
#[derive(Clone, Debug)]
pub enum Op {
    /// Submits jobs, and claims them for a worker if it names one.
    Submit { jobs: Vec<JobDraft>, claimed_by: Option<u8> },
    /// Repeats an earlier submit.
    RepeatSubmit { which: u8 },
    /// Claims; the bits of `kinds` select which of the four kinds and versions are served, `settled` an earlier claim to settle;
    /// with `only`, one job, unless `solo`.
    Claim { worker: u8, queue: u8, kinds: u8, limit: u8, solo: bool, only: Option<u8>, settled: Option<u8> },
    /// Repeats an earlier claim.
    RepeatClaim { which: u8 },
    /// Commits changes to jobs that were claimed before.
    Commit { changes: Vec<ChangeDraft> },
    /// Repeats an earlier commit.
    RepeatCommit { which: u8 },
    /// Renews a lease, settles a claim, and reports that another claim no longer runs alone.
    Renew { worker: u8, lease: u8, settled: Option<u8>, solo_ended: Option<u8> },
    /// Declares workers dead and reaps their claims.
    Reap { dead: Option<u8>, lapsed: bool, limit: u8, crashes: u8 },
    /// Releases jobs that were claimed before.
    Release { picks: Vec<u8> },
    /// Retires a worker.
    Retire { worker: u8 },
    /// Registers a new worker under this number, or tries to register the current one again.
    Register { worker: u8, again: bool },
    /// Fires timers.
    FireTimers { limit: u8 },
    /// Acts on jobs.
    Act { ids: Vec<u8>, action: u8, amount: i8 },
    /// Changes a setting of the store.
    Administer { action: u8, amount: u8 },
    /// Deletes ended jobs.
    Prune { state: u8, age: u8 },
    /// Sends signals: to which job, of which name, with which dedup id.
    Signal { signals: Vec<(u8, u8, u8)> },
    /// Moves a machine to another version and stage; `outdated` names the revision before the current one.
    UpdateStage { id: u8, version: u8, stage: u8, outdated: bool },
    /// Forks a job under another id, before one of its entries (or after the last, or at a position that does not exist),
    /// with a key or none.
    Fork { from: u8, id: u8, before: u8, key: Option<u8> },
    /// Polls branches.
    Poll { limit: u8 },
    /// Advances the clock.
    AdvanceClock { seconds: u16 },
}

/// A job to be submitted.
#[derive(Clone, Debug, Default)]
pub struct JobDraft {
    /// Which id.
    pub id: u8,
    /// Which input.
    pub input: u8,
    /// Which of two queues.
    pub queue: u8,
    /// Which of four kinds and versions.
    pub kind: u8,
    /// Which key.
    pub key: Option<u8>,
    /// Its priority.
    pub priority: i8,
    /// Its delay, in seconds.
    pub delay: u8,
    /// When its deadline is, in seconds from now.
    pub deadline: Option<u8>,
    /// Which serial key: 1 keeps its slot during a retry delay, 2 sets its number of slots.
    pub serial: Option<u8>,
    /// Which unique name, how a conflict is resolved, and which scope.
    pub unique: Option<(u8, u8, u8)>,
    /// Its weight under the one rate limit.
    pub weight: Option<u8>,
    /// Which job is its parent.
    pub parent: Option<u8>,
    /// In which stage it starts, if it is a machine.
    pub stage: Option<u8>,
    /// The signals it is submitted with: name and dedup id.
    pub signals: Vec<(u8, u8)>,
    /// Which branch of its parent it is in and how many items it has, if a step spawns it.
    pub branch: Option<(u8, u8)>,
}

/// A change to be committed.
#[derive(Clone, Debug, Default)]
pub struct ChangeDraft {
    /// Which of the jobs claimed so far, counted from the newest.
    pub pick: u8,
    /// Which outcome.
    pub outcome: u8,
    /// The delay of a retry or the timeout of a wait, in seconds.
    pub after: u8,
    /// What is added to the revision: 0 in a valid change.
    pub rev: i8,
    /// Whether it names a claim that the store does not have.
    pub lost_claim: bool,
    /// Which signals a wait is for.
    pub names: u8,
    /// What its step writes.
    pub step: Option<StepDraft>,
}

/// What the step of a machine or workflow writes.
#[derive(Clone, Debug, Default)]
pub struct StepDraft {
    /// Whether the transition is recorded.
    pub from_stage: bool,
    /// Which stage it moves to, with how much data; 0 is more than a row holds.
    pub stage: Option<(u8, u8)>,
    /// Whether it reports that nothing has changed.
    pub unchanged: bool,
    /// Whether it consumes the signals it was given.
    pub consumes: bool,
    /// Whether it could not read the first of them.
    pub unreadable: bool,
    /// The children it spawns.
    pub children: Vec<JobDraft>,
    /// What the step of a workflow writes in addition.
    pub workflow: Option<WorkflowDraft>,
    /// Its updates of branches.
    pub branches: Vec<BranchDraft>,
    /// How many items of a block it reports done, if the job is a block with that many left.
    pub items: u8,
    /// The items it promotes, if the job is a block with that many left.
    pub promoted: Vec<JobDraft>,
    /// Whether it may contradict what the worker knows of branches and items.
    pub unchecked: bool,
}

/// An update of a branch, which it opens if the job has none of that number.
#[derive(Clone, Debug, Default)]
pub struct BranchDraft {
    /// Which branch.
    pub number: u8,
    /// Its new cursor.
    pub cursor: Option<u8>,
    /// Which ends are watched for (done, unsuccessful, or any), and how many.
    pub watch: Option<(u8, u8)>,
    /// Whether it is sealed.
    pub seal: bool,
    /// Whether it is merged.
    pub merged: bool,
    /// Whether its children are to be cancelled.
    pub cancel_children: bool,
}

/// What the step of a workflow writes in addition.
#[derive(Clone, Debug, Default)]
pub struct WorkflowDraft {
    /// How many entries it adds to the journal.
    pub entries: u8,
    /// Which entry it deletes, in revisions back from the last.
    pub forget_entry: Option<u8>,
    /// Which name of the context gets which value.
    pub context: Option<(u8, u8)>,
    /// Whether the journal is cleared first.
    pub continue_as_new: bool,
    /// Whether the job has a step to undo from now on.
    pub has_undo: bool,
    /// Whether the job is being unwound from now on, and then fails (`true`) or is cancelled.
    pub unwind: Option<bool>,
    /// Whether the ends of the children send a signal.
    pub signal_child_ends: bool,
}
