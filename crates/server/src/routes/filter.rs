//! The filter of jobs: which of them a list shows, and which an operation on many is about.

use windlass::{Filter, JobId, State, Time};

use crate::input::input;

/// Declares a query or a body with the fields of the filter, and what else it has. `before` has a text of its own.
macro_rules! job_filter {
    ($(#[doc = $about:literal])+ $name:ident { $(#[doc = $before:literal])+ before, $($rest:tt)* }) => {
        input! {
            $(#[doc = $about])+
            $name {
                /// Only in this state.
                state: Option<State>,
                /// Only of this kind.
                kind: Option<String>,
                /// Only in this queue.
                queue: Option<String>,
                /// Only with this tag.
                tag: Option<String>,
                /// Only with this key.
                key: Option<String>,
                /// Only with a key that begins with this.
                key_prefix: Option<String>,
                /// Only failed and cancelled jobs whose error has this class.
                error_class: Option<String>,
                /// Only machines in this stage.
                stage: Option<String>,
                /// Only of this version of their kind.
                version: Option<i32>,
                /// Only jobs that no other job submitted.
                top: Option<bool>,
                /// Only jobs submitted at this time or later, by the clock of their submitter.
                since: Option<Time>,
                /// Only jobs submitted before this time, likewise.
                until: Option<Time>,
                $(#[doc = $before])+
                before: Option<JobId>,
                $($rest)*
            }
        }

        impl $name {
            /// The filter of the store, for a page of this length.
            pub(super) fn into_filter(self, limit: usize) -> Filter {
                let $name { state, kind, queue, tag, key, key_prefix, error_class, stage, .. } = self;
                let $name { version, top, since, until, before, .. } = self;
                let top = top.unwrap_or(false);
                Filter {
                    state,
                    kind,
                    queue,
                    tag,
                    key,
                    key_prefix,
                    error_class,
                    stage,
                    version,
                    top,
                    since,
                    until,
                    before,
                    limit,
                }
            }
        }
    };
}
pub(super) use job_filter;

job_filter! {
    /// Which jobs are meant.
    FilterInput {
        /// Only older than this job.
        before,
    }
}

impl FilterInput {
    /// Whether it chooses no jobs.
    pub(super) fn is_empty(&self) -> bool {
        // `before` continues an operation, and does not choose jobs.
        let FilterInput { state, kind, queue, tag, key, key_prefix, error_class, stage, .. } = self;
        let FilterInput { version, top, since, until, before: _, .. } = self;
        let texts = [kind, queue, tag, key, key_prefix, error_class, stage];
        let times = [since, until];
        texts.into_iter().all(Option::is_none)
            && times.into_iter().all(Option::is_none)
            && state.is_none()
            && version.is_none()
            && top.is_none()
    }
}
