//! The signals that ask a command to end.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::out;

/// SIGINT and SIGTERM, listened for from the moment it is made.
pub(crate) struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    pub(crate) fn listen() -> std::io::Result<Stop> {
        Ok(Stop { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    pub(crate) async fn told(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// A flag that is set when the process is told to end, for work that looks now and then. Told again, the process
    /// exits at once.
    pub(crate) fn flag() -> std::io::Result<Arc<AtomicBool>> {
        let mut stop = Stop::listen()?;
        let flag = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&flag);
        tokio::spawn(async move {
            stop.told().await;
            told.store(true, Ordering::Relaxed);
            stop.told().await;
            out::note("told twice: exiting at once; what was done stays done");
            std::process::exit(INTERRUPTED.into())
        });
        Ok(flag)
    }
}

/// The exit code of a command that was told to end before it was through.
pub(crate) const INTERRUPTED: u8 = 130;
