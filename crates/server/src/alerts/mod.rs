//! Alerts: evaluating rules, and posting messages to webhooks.
//!
//! [`alert_loop`] calls the evaluator of `windlass::operate` every few seconds. Any number of servers may do so on one store: only one of them
//! records a change and submits its message. [`webhook`] has the jobs that post messages, for a server that runs jobs and for workers;
//! [`link`] knows where people see what an alert is about.

pub(crate) mod alert_loop;
pub(crate) mod link;
pub(crate) mod webhook;
