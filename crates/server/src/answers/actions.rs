//! What actions did, and diagrams.

use windlass::{
    model::{BranchCounts, merge::BranchProgress},
    operate::{
        Acted, BulkProgress, ForkProgress, Forked, Preview, PruneProgress, RedriveProgress, Refusal,
        SkippedBranch,
        diagram::{CurrentStage, JobDiagram, KindDiagrams, TransitionEdge, Transitions, WorkflowDiagram},
        graph::{Edge, Graph, Node},
    },
};

use super::answers;

answers! {
    /// What an action did to one job.
    Acted {
        /// The job.
        job,
        outcome [+],
        /// Whether the job is now as the action wants it. One that is done or failed already is not cancelled.
        achieved,
        /// How many children of the unmerged branches of a cancelled job are cancelled with it; left out if it has no such branches.
        children_cancelled [?],
        /// How many descendants were cancelled too, if that was asked for.
        children [?],
    }

    /// The jobs that a bulk operation would change.
    Preview {
        /// How many jobs match and are in a state to which the action applies.
        matching,
        /// Whether there may be more than were counted.
        at_least,
        /// Only jobs before this one were counted. An operation on the jobs before it leaves those alone that are submitted later.
        before,
        /// Some of them, newest first.
        sample,
        /// How many items the blocks among these have.
        block_items [?],
        now [-],
    }

    /// What a bulk operation has done so far.
    BulkProgress {
        /// Jobs that it has tried to change.
        seen,
        /// Jobs that were changed.
        done,
        /// Running jobs that were requested to end.
        cancel_requested,
        /// Jobs that needed no change.
        already ["unchanged"],
        /// Jobs that refused the action, or that no longer exist.
        refused,
        /// Whether it was interrupted before the last job.
        interrupted,
        /// If it was interrupted: the rest are the matching jobs before this one.
        next_before [?],
        /// The first jobs that refused the action, and why.
        refusals [?],
    }

    /// What a redrive has done so far.
    RedriveProgress {
        /// How many children had failed or were cancelled when it began.
        unsuccessful,
        /// How many were retried.
        retried,
        /// How many others had retried meanwhile.
        already ["already_retried"],
        /// How many could not be retried.
        refused,
        /// The first of those, and why.
        refusals,
        /// Branches that were skipped, and why.
        skipped,
        /// Whether it was interrupted before the last child.
        interrupted,
    }

    /// A job that was not changed.
    Refusal {
        /// The job.
        job,
        /// Why, and what to do.
        why,
    }

    /// A branch whose children a redrive does not retry.
    SkippedBranch {
        /// The name of the branch.
        branch,
        /// Why.
        why,
    }

    /// The outcome of forking many jobs.
    ForkProgress {
        /// The jobs that were forked, each with its new job.
        made ["forked"],
        /// Those that were not, and why.
        refused,
        /// Whether it was interrupted before the last job.
        interrupted,
        /// If it was interrupted: the rest are the matching jobs before this one.
        next_before [?],
    }

    /// A job that was forked.
    Forked {
        /// The original.
        from,
        /// The new job.
        job,
    }

    /// What a prune has done so far.
    PruneProgress {
        /// How many jobs were deleted.
        jobs ["pruned"],
        /// How many are old enough and stay: their parent is not done, or they hold a unique name.
        kept,
        /// Whether there are more.
        interrupted,
    }

    /// The diagram of one job: of a machine, of a workflow, or of neither if it is a task or has not started.
    JobDiagram {
        /// The job.
        job,
        /// Its kind.
        kind,
        /// Its kind's version.
        version,
        /// The transitions of a machine.
        machine [?],
        /// The calls of a workflow.
        workflow [?],
    }

    /// The diagrams of the newest jobs of a kind, by version; of machines, or else of workflows.
    KindDiagrams {
        /// Of machines.
        machines [?],
        /// Of workflows.
        workflows [?],
    }

    /// The calls of the workflows of one version.
    WorkflowDiagram {
        /// The version of the kind.
        version,
        /// The calls.
        graph,
    }

    /// The transitions of machines.
    Transitions {
        /// The version of the kind.
        version,
        /// The first stages.
        starts,
        /// The transitions, breadth-first from the start.
        edges,
        /// The stage of the one job that the diagram is of, if it has not ended.
        current [?],
    }

    /// A transition.
    TransitionEdge {
        /// The stage that ran.
        from,
        /// The stage that it led to; `null` is the end.
        to,
        /// How.
        outcome,
        /// How often.
        times,
    }

    /// Where one machine is.
    CurrentStage {
        /// Its stage.
        stage,
        /// Its state.
        state,
    }

    /// The calls of a workflow, and their order.
    Graph {
        /// How many jobs it was computed from.
        jobs,
        /// The calls, in order.
        nodes,
        /// Which call followed which.
        edges,
    }

    /// All calls of one name.
    Node {
        /// What was called.
        call_kind,
        /// Its name.
        name,
        /// How many of the calls are in each state.
        fates,
        /// Details for people.
        notes,
        /// The progress of a branch, summed over all jobs.
        children [?],
        /// Its distance from the start, from 0. Nodes of one level are drawn side by side.
        level,
    }

    /// One point followed another.
    Edge {
        /// Where it starts.
        from,
        /// Where it ends.
        to,
        /// In how many jobs.
        jobs,
    }

    /// How far a branch has come.
    BranchProgress {
        /// How many children were spawned.
        spawned,
        /// How many of them have ended in which state.
        counts,
    }

    /// How many children of a branch have started and ended so far.
    BranchCounts {
        /// Children that have committed anything, or have ended.
        started,
        /// Children that are done.
        done,
        /// Children that failed.
        failed,
        /// Children that were cancelled.
        cancelled,
    }
}
