//! The client of one server, and its pool of connections.

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Uri,
    header::{ACCEPT, AUTHORIZATION, HOST, HeaderValue, USER_AGENT},
};
use tokio_rustls::TlsConnector;

use crate::{
    Error, Request, Response,
    address::Address,
    connect::{self, Sender},
    error::innermost,
};

/// How a client connects, and how long it waits.
#[derive(Clone)]
pub struct Options {
    /// The bearer token of every request.
    pub token: Option<String>,
    /// A PEM file with the authorities to trust, in place of those of the operating system.
    pub ca_file: Option<PathBuf>,
    /// Whether `http` to other machines is allowed: everything is sent unencrypted, the token too.
    pub allow_http: bool,
    /// How long a connection may take to open, TLS included.
    pub connect_timeout: Duration,
    /// How long the head of a response may take to arrive, unless a request says otherwise.
    pub timeout: Duration,
    /// How long each further part of a body may take to arrive.
    pub idle_timeout: Duration,
    /// The most bytes of a body that is read whole.
    pub body_limit: usize,
    /// How many connections are kept while nobody uses them.
    pub max_idle: usize,
    /// How long a connection is kept while nobody uses it.
    pub keep_idle: Duration,
    /// The name of the program, for the server's log.
    pub user_agent: String,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            token: None,
            ca_file: None,
            allow_http: false,
            connect_timeout: Duration::from_secs(10),
            // Longer than the server lets a request run, so that its answer says what took too long.
            timeout: Duration::from_secs(60),
            // Streams send something every 15 seconds.
            idle_timeout: Duration::from_secs(45),
            body_limit: 256 << 20,
            max_idle: 32,
            // Less than servers and proxies keep one.
            keep_idle: Duration::from_secs(15),
            user_agent: concat!("windlass/", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = self.token.as_ref().map(|_| "…");
        f.debug_struct("Options")
            .field("token", &token)
            .field("ca_file", &self.ca_file)
            .finish_non_exhaustive()
    }
}

/// A client of one server. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    address: Address,
    options: Options,
    tls: Option<TlsConnector>,
    /// The bearer token, marked as sensitive.
    authorization: Option<HeaderValue>,
    user_agent: HeaderValue,
    pool: Arc<Pool>,
}

impl Client {
    /// A client of the server at `url`. Opens no connection.
    pub fn new(url: &str, options: Options) -> Result<Client, Error> {
        let address = Address::parse(url, options.allow_http)?;
        let tls = address.is_tls.then(|| connect::tls(options.ca_file.as_deref())).transpose()?;
        let authorization = match &options.token {
            Some(token) => {
                let mut value =
                    HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| Error::Token)?;
                value.set_sensitive(true);
                Some(value)
            }
            None => None,
        };
        let user_agent = HeaderValue::from_str(&options.user_agent).map_err(|_| {
            Error::Request("the name of the program has characters that no header may have".into())
        })?;
        let pool = Pool::new(options.max_idle, options.keep_idle);
        Ok(Client(Arc::new(Inner { address, options, tls, authorization, user_agent, pool })))
    }

    /// The address of the server, as people read it.
    pub fn url(&self) -> String {
        self.0.address.to_text()
    }

    /// Sends a request. Returns when the head of the response has arrived, whatever its status is.
    pub async fn send(&self, request: Request) -> Result<Response, Error> {
        let Options { timeout, connect_timeout, .. } = self.0.options;
        let (limit, whole) = match request.limit {
            Some(limit) => (limit, limit),
            None => (timeout, timeout + connect_timeout),
        };
        match tokio::time::timeout(whole, self.exchange(request, limit)).await {
            Ok(answered) => answered,
            Err(_) => Err(Error::Timeout { server: self.url(), limit }),
        }
    }

    async fn exchange(&self, request: Request, limit: Duration) -> Result<Response, Error> {
        // The other end may close a connection of the pool at any time.
        while let Some(sender) = self.0.pool.take().await {
            match self.try_send(sender, &request, limit).await {
                Err(Failed { error, was_sent }) if was_sent && !request.is_repeatable => return Err(error),
                Err(Failed { error: error @ Error::Timeout { .. }, .. }) => return Err(error),
                Err(_) => {}
                Ok(response) => return Ok(response),
            }
        }
        let Inner { address, options, tls, .. } = &*self.0;
        let sender = connect::connect(address, tls.as_ref(), options.connect_timeout).await?;
        self.try_send(sender, &request, limit).await.map_err(|failed| failed.error)
    }

    async fn try_send(
        &self,
        mut sender: Sender,
        request: &Request,
        limit: Duration,
    ) -> Result<Response, Failed> {
        let message = self.message(request).map_err(|error| Failed { error, was_sent: false })?;
        let server = || self.url();
        let Options { idle_timeout, body_limit, .. } = self.0.options;
        let answered = match tokio::time::timeout(limit, sender.try_send_request(message)).await {
            Ok(answered) => answered,
            Err(_) => {
                return Err(Failed { error: Error::Timeout { server: server(), limit }, was_sent: true });
            }
        };
        match answered {
            Ok(response) => {
                let connection = PooledConnection { sender, pool: Arc::downgrade(&self.0.pool) };
                Ok(Response::new(response, connection, server(), idle_timeout, body_limit))
            }
            Err(mut failed) => {
                let was_sent = failed.take_message().is_none();
                let error = failed.error();
                let why = innermost(error);
                let is_http = !error.is_parse() && !error.is_parse_too_large() && !error.is_parse_status();
                let error = match is_http {
                    true => Error::Lost { server: server(), why },
                    false => Error::NotHttp { server: server(), why },
                };
                Err(Failed { error, was_sent })
            }
        }
    }

    fn message(&self, request: &Request) -> Result<hyper::Request<Full<Bytes>>, Error> {
        let Inner { address, authorization, user_agent, .. } = &*self.0;
        let wrong = |error: &dyn std::error::Error| Error::Request(error.to_string());
        let uri: Uri = address.path(&request.path).parse().map_err(|error| wrong(&error))?;
        let host = HeaderValue::from_str(&address.authority).map_err(|error| wrong(&error))?;
        let mut message = hyper::Request::new(Full::new(request.body.clone()));
        *message.method_mut() = request.method.clone();
        *message.uri_mut() = uri;
        let headers = message.headers_mut();
        headers.insert(HOST, host);
        headers.insert(USER_AGENT, user_agent.clone());
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        if let Some(authorization) = authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        headers.extend(request.headers.clone());
        Ok(message)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("server", &self.url()).finish_non_exhaustive()
    }
}

/// Why a request has no response on one connection.
struct Failed {
    error: Error,
    /// Whether any of it may have arrived.
    was_sent: bool,
}

/// Connections that nobody uses.
struct Pool {
    idle: Mutex<Vec<(Sender, Instant)>>,
    max_idle: usize,
    keep_idle: Duration,
}

impl Pool {
    fn new(max_idle: usize, keep_idle: Duration) -> Arc<Pool> {
        Arc::new(Pool { idle: Mutex::default(), max_idle, keep_idle })
    }

    /// Takes the connection that was used last and can send.
    async fn take(&self) -> Option<Sender> {
        loop {
            let (mut sender, since) = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
            if since.elapsed() > self.keep_idle {
                // The others are older.
                self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
                return None;
            }
            // Its task may still be finishing the last response; it is ready, or closed, at once.
            if sender.ready().await.is_ok() {
                return Some(sender);
            }
        }
    }

    fn put(&self, sender: Sender) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if sender.is_closed() || self.max_idle == 0 {
            return;
        }
        if idle.len() >= self.max_idle {
            idle.remove(0);
        }
        idle.push((sender, Instant::now()));
    }
}

/// A connection in use by a response.
pub(crate) struct PooledConnection {
    sender: Sender,
    pool: Weak<Pool>,
}

impl PooledConnection {
    /// Returns the connection to the pool, once the body of its response has been read.
    pub(crate) fn give_back(self) {
        if let Some(pool) = self.pool.upgrade() {
            pool.put(self.sender);
        }
    }
}

impl fmt::Debug for PooledConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PooledConnection")
    }
}
