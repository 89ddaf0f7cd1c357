//! Branches and their children.

use windlass::operate::{
    Item,
    views::{BranchTimesView, BranchView, BranchesView, ItemList, Percentiles, Totals},
};

use super::answers;

answers! {
    /// A branch of a job.
    BranchView {
        /// Its name.
        name,
        /// Its number among those of its job.
        number,
        /// The names of its spawns.
        spawns,
        /// Whether it is merged.
        merge_state,
        /// Whether no more children will be spawned.
        sealed,
        /// Whether its live children are being cancelled.
        cancels_children,
        /// How many children it has.
        spawned,
        /// How many of them are done.
        done,
        /// How many failed.
        failed,
        /// How many were cancelled.
        cancelled,
        /// How many have not ended.
        pending,
        /// How many of the pending children were never started, as far as the last poll knows.
        never_started,
        /// How many children end per second, if known.
        rate,
        /// How long the pending children take at this rate, in seconds.
        eta_seconds,
        /// How it is merged, in words.
        merge,
        /// Whether it cannot be merged until somebody retries children.
        blocked,
        /// What blocks it, and what to do about it. A note begins with a word and a colon.
        notes,
        /// When it was opened.
        opened_at,
        /// When it was merged; it may be merged again if its job is retried.
        merged_at,
        /// When workers polled it last.
        last_poll_at,
        /// When they poll it next.
        next_poll_at,
        /// The seconds between the two.
        poll_interval_seconds,
        /// How often it was polled.
        polls,
        /// How many lost children were put back into the ready set.
        redelivered,
        /// When the last of them was.
        redelivered_at,
        /// When its children were spawned, started and ended, and how long that took.
        times,
    }

    /// The times of a branch: of spawning, and of the children that have ended. Those of a block are the block's.
    BranchTimesView {
        /// When it was sealed.
        sealed_at,
        /// How long spawning took, in seconds; until now if it is not sealed.
        spawn_seconds,
        /// How many children were spawned per second in that time; `null` if it took none.
        spawn_rate,
        /// When the first child started, of those that have ended.
        first_start_at,
        /// When the last one ended.
        last_end_at,
        /// How many children ended per second, from when it was opened until the last one ended.
        end_rate,
        /// How long children waited from when they were due until the attempt started that ended them.
        wait,
        /// How long that attempt ran.
        run,
    }

    /// The totals of all branches that are not merged.
    Totals {
        /// How many branches.
        branches,
        /// How many children they have.
        spawned,
        /// How many of them are done.
        done,
        /// How many failed or were cancelled.
        unsuccessful,
        /// How many have not ended.
        pending,
        /// How many of these were never started, if known.
        never_started,
        /// How many children end per second, if known.
        rate,
        /// How long all pending children take: their number divided by the sum of the rates.
        eta_seconds,
    }

    /// The branches of a job.
    BranchesView {
        /// The job that opened them.
        job,
        /// Its kind.
        kind,
        /// Its key.
        key,
        /// Its state.
        state,
        /// The store's clock.
        now,
        /// The branches, by number.
        branches,
        /// The totals of those that are not merged.
        unmerged,
    }

    /// Children of a job's branches.
    ItemList {
        /// The job.
        job,
        /// Its key or id, with which the names of its children begin.
        parent,
        /// The children.
        children,
        /// The next page has the children after this position; `null` on the last page.
        next_after,
    }

    /// A child of a branch.
    Item {
        /// The id of its job; in a block, the id of the job that it becomes if it is promoted.
        id,
        /// Its name: its parent's key or id, the branch, the spawn and the item.
        key,
        /// Its position in the branch.
        place,
        /// Its kind.
        kind,
        /// Its kind's version.
        version,
        /// Its state; in a block it is done, or has the state of the block.
        state,
        /// The block it is in.
        block [?],
        /// Its input, if this program can decode it.
        input [?],
        /// Its output, if it is done and this program can decode it.
        result [?],
        /// Why it failed.
        reason [?],
        /// Its last error, or that of its block.
        failure [?],
    }

    /// How durations are spread.
    Percentiles {
        /// How many durations there are.
        count,
        /// Half of them are not longer, in seconds; within 10 %, as the others are. `null` if there are none.
        p50_seconds,
        /// 95 % are not longer.
        p95_seconds,
        /// 99 % are not longer.
        p99_seconds,
    }
}
