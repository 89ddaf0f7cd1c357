//! Settings of `serve`.

/// The settings of the server in one layer, as text. They are parsed by the command, which not every program has.
#[derive(Clone, Default, Debug, PartialEq)]
pub(crate) struct ServerSettings {
    /// The address to listen on.
    pub(crate) listen: Option<String>,
    /// The names of the server.
    pub(crate) hosts: Vec<String>,
    /// The networks of trusted proxies.
    pub(crate) trusted_proxies: Vec<String>,
    pub(crate) tls_cert: Option<String>,
    pub(crate) tls_key: Option<String>,
    /// Whether a token is needed on loopback too.
    pub(crate) login: Option<bool>,
    /// How many requests a client may send per second.
    pub(crate) rate: Option<u32>,
    /// The address by which people reach it.
    pub(crate) public_url: Option<String>,
    /// How many connections a client may have.
    pub(crate) client_connections: Option<u32>,
    /// How many streams and waiting requests a client may have.
    pub(crate) client_streams: Option<u32>,
}

impl ServerSettings {
    /// These settings over those of the layer below.
    pub(super) fn over(self, below: ServerSettings) -> ServerSettings {
        let first = |above: Vec<String>, below| if above.is_empty() { below } else { above };
        ServerSettings {
            listen: self.listen.or(below.listen),
            hosts: first(self.hosts, below.hosts),
            trusted_proxies: first(self.trusted_proxies, below.trusted_proxies),
            tls_cert: self.tls_cert.or(below.tls_cert),
            tls_key: self.tls_key.or(below.tls_key),
            login: self.login.or(below.login),
            rate: self.rate.or(below.rate),
            public_url: self.public_url.or(below.public_url),
            client_connections: self.client_connections.or(below.client_connections),
            client_streams: self.client_streams.or(below.client_streams),
        }
    }
}

/// A list in a variable: names separated by commas.
pub(super) fn list(text: Option<String>) -> Vec<String> {
    let text = text.unwrap_or_default();
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(String::from).collect()
}
