//! The metrics of an engine, as text and served to Prometheus.

use std::{io, net::SocketAddr};

use crate::{Engine, Error};

impl Engine {
    /// The metrics of this engine's worker and of its store, in the text format of Prometheus. If the store does not answer
    /// within two seconds, its metrics are missing and `windlass_store_up` is 0.
    pub async fn metrics(&self) -> String {
        self.telemetry().metrics().await
    }

    /// Serves `/metrics` and `/healthz` at `addr` (`HOST:PORT`), on a thread of its own, as long as a clone of this engine
    /// exists. Returns the address: port 0 chooses a free port.
    ///
    /// `/healthz` is 200 while a worker runs here and its lease is valid, and 503 otherwise.
    pub fn serve_metrics(&self, addr: &str) -> Result<SocketAddr, Error> {
        self.telemetry().serve(addr).map_err(|error| {
            let next = match error.kind() {
                io::ErrorKind::AddrInUse => {
                    "something else listens there, perhaps another worker: give each a port of its own"
                }
                io::ErrorKind::AddrNotAvailable => {
                    "that address is not this machine's: use 127.0.0.1, or 0.0.0.0 to be reached from elsewhere"
                }
                io::ErrorKind::PermissionDenied => "choose a port from 1024 on",
                _ => "write it as HOST:PORT, like 127.0.0.1:9464",
            };
            Error::Setup(format!("metrics cannot be served at {addr:?} ({error}); {next}"))
        })
    }
}
