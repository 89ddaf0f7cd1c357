//! Bounds what a demo keeps that stays for hours: deletes jobs that ended some time ago, and begins the large branch again when the children
//! of the one before are about to be deleted.

use std::time::Duration;

use windlass::{
    Engine, State,
    span::{hours, minutes},
    store::Prune,
};

use super::{Every, population::make_statements};

/// How long jobs are kept that ended in a state. Failed ones are few, and what people look at.
const KEPT: [(State, Duration); 3] =
    [(State::Done, minutes(15)), (State::Cancelled, hours(1)), (State::Failed, hours(3))];
const PRUNE_EVERY: Duration = minutes(4);
/// How many jobs are examined in one transaction, and the pause to the next: little, so that nobody waits for it.
const BATCH: usize = 500;
const PAUSE: Duration = Duration::from_millis(50);
/// How often the statements are made again: when the children of the run before are deleted, so that there is never much more than one run.
const STATEMENTS_EVERY: Duration = minutes(20);

pub(super) struct Housekeeping {
    engine: Engine,
    statements: u32,
    prune: Every,
    begin: Every,
}

impl Housekeeping {
    pub(super) fn new(engine: Engine, statements: u32) -> Housekeeping {
        let prune = Every::new(PRUNE_EVERY, PRUNE_EVERY);
        let begin = Every::new(STATEMENTS_EVERY, STATEMENTS_EVERY);
        Housekeeping { engine, statements, prune, begin }
    }

    pub(super) async fn run(&mut self) -> anyhow::Result<()> {
        let mut ticks = tokio::time::interval(Duration::from_secs(5));
        loop {
            ticks.tick().await;
            if self.prune.is_due() {
                self.prune().await?;
            }
            if self.begin.is_due() {
                make_statements(&self.engine, self.statements).await?;
            }
        }
    }

    async fn prune(&self) -> anyhow::Result<()> {
        let store = self.engine.store();
        for (state, kept) in KEPT {
            let before = store.inspect().clock().await? - kept;
            let mut prune = Prune { state, before, kind: None, after: None, limit: BATCH };
            loop {
                prune.after = store.prune(None, &prune).await?.after;
                if prune.after.is_none() {
                    break;
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
        Ok(())
    }
}
