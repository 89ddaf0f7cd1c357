//! The loop that evaluates alert rules, as long as the server runs.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::watch;
use windlass::operate::{
    Operator,
    alerts::{Evaluator, PassReport, Rule, TargetUrl},
};

use super::link;

/// How often alerts that are long resolved are deleted.
const PRUNE_EVERY: Duration = Duration::from_secs(3_600);

/// Which rules a server evaluates, and how often.
#[derive(Clone, Debug)]
pub struct AlertSettings {
    /// The rules. Without any, what is left of alerts of earlier rules is resolved, and then nothing is read any more.
    pub rules: Vec<Rule>,
    /// How often they are evaluated.
    pub every: Duration,
    /// For how long resolved alerts are kept.
    pub keep: Duration,
}

impl Default for AlertSettings {
    fn default() -> AlertSettings {
        AlertSettings {
            rules: Rule::built_in(),
            every: Duration::from_secs(15),
            keep: Duration::from_secs(30 * 86_400),
        }
    }
}

/// Evaluates rules until the server stops.
pub(crate) struct AlertLoop {
    operator: Operator,
    evaluator: Evaluator,
    settings: AlertSettings,
    pruned_at: Option<Instant>,
    /// Whether the last pass failed: an outage is logged once.
    is_failing: bool,
}

impl AlertLoop {
    /// Messages have links to pages at `base`.
    pub(crate) fn new(operator: Operator, settings: AlertSettings, base: Option<String>) -> AlertLoop {
        let link = base
            .map(|base| -> TargetUrl { Arc::new(move |target| format!("{base}{}", link::path_of(target))) });
        let evaluator = Evaluator::new(settings.rules.clone(), link);
        AlertLoop { operator, evaluator, settings, pruned_at: None, is_failing: false }
    }

    pub(crate) async fn run(mut self, mut stopping: watch::Receiver<bool>) {
        loop {
            match self.tick().await {
                Ok(passed) if !self.evaluator.has_rules() && passed.open == 0 => return,
                Ok(_) => self.is_failing = false,
                Err(error) if self.is_failing => tracing::debug!(%error, "alert rules are not evaluated"),
                Err(error) => {
                    self.is_failing = true;
                    tracing::warn!(%error, "alert rules are not evaluated until the store answers");
                }
            }
            tokio::select! {
                () = tokio::time::sleep(self.settings.every) => {}
                // The sender lives as long as the server.
                _ = stopping.wait_for(|stopping| *stopping) => return,
            }
        }
    }

    /// Evaluates all rules once, and now and then deletes what is old.
    async fn tick(&mut self) -> Result<PassReport, windlass::Error> {
        let passed = self.evaluator.pass(&self.operator).await?;
        if passed.left_out > 0 {
            tracing::warn!(left_out = passed.left_out, "a rule finds too much wrong: some of it is no alert");
        }
        if self.evaluator.has_rules() && self.pruned_at.is_none_or(|at| at.elapsed() >= PRUNE_EVERY) {
            self.operator.prune_alerts(self.settings.keep).await?;
            self.pruned_at = Some(Instant::now());
        }
        Ok(passed)
    }
}
