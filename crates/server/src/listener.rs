//! Connections: accepting them, TLS, and their graceful end.

use std::{
    future::Future,
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{Router, body::Body, http::Request};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinSet,
    time::Sleep,
};
use tokio_rustls::TlsAcceptor;
use windlass::{Engine, operate::alerts::Rule};

use crate::{
    alerts::{alert_loop::AlertLoop, link},
    server::{Peer, Shared, router},
    settings::{Settings, StartError},
    tls,
};

/// How long to wait after an accept that failed: mostly the process has no more file descriptors, and some will be closed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The most bytes of a request's head.
const MAX_HEAD: usize = 32 << 10;

/// A server that listens and is not running yet.
pub struct Server {
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
}

impl Server {
    /// Listens at the address of the settings. Refuses to start where others could do what they want: see [`StartError`].
    pub async fn bind(engine: Engine, settings: Settings) -> Result<Server, StartError> {
        let tls = settings.tls.as_ref().map(tls::acceptor).transpose()?;
        settings.alerts.as_ref().map_or(Ok(()), |alerts| Rule::check_all(&alerts.rules))?;
        if settings.needs_login() && !anybody_may_log_in(&engine).await? {
            return Err(StartError::NoLogins(settings.listen));
        }
        if tls.is_none() && !settings.listen.ip().is_loopback() {
            tracing::warn!(
                "passwords and tokens are sent unencrypted; set --tls-cert and --tls-key, or use a proxy with TLS"
            );
        }
        let failed = |error| StartError::Listen(settings.listen, error);
        let listener = TcpListener::bind(settings.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (stop, stopping) = watch::channel(false);
        let shared = Shared::new(engine, settings, address, stopping);
        Ok(Server { listener, tls, shared, stop })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// Answers requests until `stop` is ready. Then it accepts nothing more, ends streams and waiting requests with an answer that
    /// says so, and waits for the others as long as [`Settings::drain`] says.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Server { listener, tls, shared, stop: stopping } = self;
        let router = router(&shared);
        let connections = Arc::new(Semaphore::new(shared.settings.max_connections));
        let mut tasks = JoinSet::new();
        let alerts = shared.settings.alerts.clone().map(|settings| {
            let base = link::base(&shared.settings, shared.address);
            let alerts = AlertLoop::new(shared.operator.clone(), settings, base);
            tokio::spawn(alerts.run(shared.stopping.clone()))
        });
        let mut stop = pin!(stop);
        loop {
            // Beyond the most connections, others wait in the queue of the operating system.
            let accepted = async {
                let permit = Arc::clone(&connections).acquire_owned().await;
                (listener.accept().await, permit)
            };
            let (accepted, permit) = tokio::select! {
                accepted = accepted => accepted,
                Some(_) = tasks.join_next() => continue,
                () = &mut stop => break,
            };
            match accepted {
                Ok((stream, address)) => {
                    let Some(counted) = shared.count_connection(address) else { continue };
                    let connection =
                        connection(stream, address, tls.clone(), router.clone(), Arc::clone(&shared));
                    tasks.spawn(async move {
                        let _permits = (permit, counted);
                        connection.await;
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection cannot be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(listener);
        stopping.send_replace(true);
        let drained = async {
            while tasks.join_next().await.is_some() {}
            if let Some(alerts) = alerts {
                // It ends between two passes, and a panic of it is in the log.
                let _ = alerts.await;
            }
        };
        if tokio::time::timeout(shared.settings.drain, drained).await.is_err() {
            tracing::warn!("some requests did not end in time, and are cut off");
        }
    }
}

/// Whether there is a user or a token that is accepted now.
async fn anybody_may_log_in(engine: &Engine) -> Result<bool, windlass::Error> {
    let operator = engine.operator();
    if operator.users().await?.iter().any(|user| user.disabled_at.is_none()) {
        return Ok(true);
    }
    let now = engine.inspect().clock().await?;
    Ok(operator.tokens().await?.iter().any(|token| token.why_refused(now).is_none()))
}

/// Serves one connection until it ends.
async fn connection(
    stream: TcpStream,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    router: Router,
    shared: Arc<Shared>,
) {
    let _ = stream.set_nodelay(true);
    let peer = Peer { address, is_tls: tls.is_some() };
    let stream = WriteTimeout::new(stream, shared.settings.write_timeout);
    let Some(tls) = tls else { return http(stream, peer, router, shared).await };
    let handshake = tls.accept(stream);
    tokio::select! {
        accepted = tokio::time::timeout(shared.settings.read_timeout, handshake) => match accepted {
            Ok(Ok(stream)) => http(stream, peer, router, shared).await,
            Ok(Err(error)) => tracing::debug!(%address, %error, "a TLS handshake failed"),
            Err(_) => tracing::debug!(%address, "a TLS handshake took too long"),
        },
        () = shared.stopped() => {}
    }
}

async fn http<S>(stream: S, peer: Peer, router: Router, shared: Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let mut router = router.clone();
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer);
        async move {
            // A router is always ready.
            use hyper_util::service::TowerToHyperService;
            hyper::service::Service::call(&TowerToHyperService::new(std::mem::take(&mut router)), request)
                .await
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(shared.settings.read_timeout)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = shared.stopped() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(address = %peer.address, %error, "a connection ended");
    }
}

/// A stream whose writes fail if the other end accepts no bytes for a while: a client that does not read must not keep its
/// connection for ever.
struct WriteTimeout<S> {
    stream: S,
    limit: Duration,
    /// Runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeout<S> {
    fn new(stream: S, limit: Duration) -> WriteTimeout<S> {
        WriteTimeout { stream, limit, waiting: None }
    }

    fn check<T>(&mut self, cx: &mut Context<'_>, poll: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.waiting = None;
            return poll;
        }
        let limit = self.limit;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        ready!(waiting.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.check(cx, poll)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.stream).poll_flush(cx);
        self.check(cx, poll)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.check(cx, poll)
    }
}
