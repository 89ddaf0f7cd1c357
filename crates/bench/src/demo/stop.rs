//! The request to stop: SIGINT or SIGTERM.

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

use crate::out;

/// The exit code of a demo that was stopped before its account was made.
pub(super) const INTERRUPTED: u8 = 130;

/// Whether the demo was asked to stop. All clones see the same request.
#[derive(Clone)]
pub(super) struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Listens to the signals from now on. The second one ends the process at once, and its workers with it.
    pub(super) fn listen() -> std::io::Result<Stop> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let (sender, stop) = watch::channel(false);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if sender.send_replace(true) {
                    out::note("second signal: exiting at once; the temporary folder stays");
                    std::process::exit(INTERRUPTED.into());
                }
            }
        });
        Ok(Stop(stop))
    }

    /// Returns once the demo was asked to stop.
    pub(super) async fn requested(&mut self) {
        // The sender is dropped only when the process ends.
        let _ = self.0.wait_for(|requested| *requested).await;
    }
}
