//! How an engine gets to a store: a database, or a server that has one.

use std::{path::PathBuf, sync::Arc};

use windlass_store::{Error, Store};

/// What an engine proves to a server, and what it trusts.
#[derive(Default)]
pub(crate) struct ServerAccess {
    pub(crate) token: Option<String>,
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) allow_http: bool,
}

impl ServerAccess {
    /// Opens the store at an address. The schema of a database is brought up to date first.
    pub(crate) async fn open(self, url: &str) -> Result<Arc<dyn Store>, Error> {
        if url.starts_with("https://") || url.starts_with("http://") {
            return self.open_server(url).await;
        }
        windlass_store::open(url, true).await
    }

    #[cfg(feature = "remote")]
    async fn open_server(self, url: &str) -> Result<Arc<dyn Store>, Error> {
        let ServerAccess { token, ca_file, allow_http } = self;
        let options = windlass_remote::Options { token, ca_file, allow_http, ..Default::default() };
        Ok(Arc::new(windlass_remote::RemoteStore::open(url, options).await?))
    }

    #[cfg(not(feature = "remote"))]
    async fn open_server(self, _url: &str) -> Result<Arc<dyn Store>, Error> {
        Err(Error::Config(
            "this program was built without servers as stores; enable the feature \"remote\" of the crate `windlass`, or use the address \
             of a database"
                .into(),
        ))
    }
}
