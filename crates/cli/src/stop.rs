//! The signals that ask a command to stop.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::out;

/// SIGINT and SIGTERM, caught from the moment this is created.
pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    pub(crate) fn listen() -> std::io::Result<StopSignals> {
        Ok(StopSignals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Returns when the next signal has arrived.
    pub(crate) async fn received(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// A flag that the first signal sets, for work that checks it between batches. The second signal ends the process.
    pub(crate) fn flag() -> std::io::Result<Arc<AtomicBool>> {
        let mut signals = StopSignals::listen()?;
        let flag = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&flag);
        tokio::spawn(async move {
            signals.received().await;
            stop.store(true, Ordering::Relaxed);
            signals.received().await;
            out::note("second signal: exiting at once; what was done stays done");
            std::process::exit(INTERRUPTED.into())
        });
        Ok(flag)
    }
}

/// The exit code of a command that a signal stopped before it had finished.
pub(crate) const INTERRUPTED: u8 = 130;
