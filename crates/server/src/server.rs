//! The path of a request: where it comes from, who sends it, whether it may, how long it may take.

use std::{
    future::Future,
    net::{IpAddr, SocketAddr},
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use axum::{
    Router,
    body::Body,
    extract::{RawPathParams, Request},
    http::{HeaderMap, HeaderName, HeaderValue, Method, Response, header},
    routing::{MethodFilter, MethodRouter, on},
};
use futures_util::FutureExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use windlass::{Engine, model::Permission, operate::Operator};

use crate::{
    access::{Principal, Refused, TokenChecks},
    audit::AuditLog,
    call::Call,
    checkup::CheckUp,
    client::{self, Client},
    error::{Error, ErrorKind, PATH},
    events::Hub,
    pages::{self, Pages},
    per_client::{Bodies, Counted, PerClient},
    rate::RateLimiter,
    refusals::Refusals,
    reply::Reply,
    routes::{Access, Route, routes},
    settings::Settings,
    worker::Workers,
};

/// How many times as many calls a client's workers may send as it may send other requests: a busy host commits some thousand times a
/// second.
const WORKER_RATE: u32 = 20;

/// What all requests share.
pub(crate) struct Shared {
    pub(crate) engine: Engine,
    pub(crate) operator: Operator,
    pub(crate) settings: Settings,
    /// The address that it listens on.
    pub(crate) address: SocketAddr,
    pub(crate) events: Arc<Hub>,
    /// Becomes true when the server stops: streams and waiting requests end.
    pub(crate) stopping: watch::Receiver<bool>,
    /// What the server knows of workers on other hosts.
    pub(crate) workers: Workers,
    pub(crate) audit: Arc<AuditLog>,
    pub(crate) checkup: CheckUp,
    /// How many connections each client has.
    pub(crate) connections: Arc<PerClient>,
    pub(crate) refusals: Refusals,
    token_checks: TokenChecks,
    rate: RateLimiter,
    /// The same for workers, which send calls all the time.
    worker_rate: RateLimiter,
    requests: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    /// What pages share.
    pub(crate) pages: Pages,
    client_streams: Arc<PerClient>,
    bodies: Bodies,
}

/// The other end of a request's connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    pub(crate) is_tls: bool,
}

/// Counts a request among those that run, and limits its time. A request that waits exchanges it for one of a stream.
pub(crate) struct Permit {
    counted: Mutex<Option<OwnedSemaphorePermit>>,
    /// Becomes true when the handler limits its own time from then on.
    is_unlimited: watch::Sender<bool>,
}

/// Counts a stream or a waiting request.
pub(crate) struct StreamPermit {
    _all: OwnedSemaphorePermit,
    _client: Counted,
}

impl Shared {
    pub(crate) fn new(
        engine: Engine,
        settings: Settings,
        address: SocketAddr,
        stopping: watch::Receiver<bool>,
    ) -> Arc<Shared> {
        let operator = engine.operator();
        let events = Hub::new(engine.clone(), stopping.clone());
        let workers = Workers::new(&engine, &settings, stopping.clone());
        let pages = Pages::new(&engine);
        let shared = Arc::new(Shared {
            operator,
            address,
            events,
            stopping,
            workers,
            audit: AuditLog::new(Arc::clone(engine.store())),
            checkup: CheckUp::default(),
            connections: PerClient::new(settings.max_client_connections),
            refusals: Refusals::default(),
            token_checks: TokenChecks::new(&settings),
            rate: RateLimiter::new(settings.rate),
            worker_rate: RateLimiter::new(settings.rate.saturating_mul(WORKER_RATE)),
            requests: Arc::new(Semaphore::new(settings.max_requests)),
            streams: Arc::new(Semaphore::new(settings.max_streams)),
            client_streams: PerClient::new(settings.max_client_streams),
            bodies: Bodies::new(settings.max_body_bytes, settings.max_client_body_bytes),
            pages,
            engine,
            settings,
        });
        tokio::spawn(Arc::clone(&shared.pages.live).run(Arc::clone(&shared)));
        shared
    }

    /// Waits until the server stops.
    pub(crate) async fn stopped(&self) {
        // The sender lives as long as the server.
        let _ = self.stopping.clone().wait_for(|stopping| *stopping).await;
    }

    /// Counts a connection; `None` if the client has the most. Whose connections those of a proxy are is not known.
    pub(crate) fn count_connection(&self, peer: SocketAddr) -> Option<Option<Counted>> {
        let address = peer.ip().to_canonical();
        if self.settings.trusted_proxies.iter().any(|network| network.contains(address)) {
            return Some(None);
        }
        let counted = self.connections.count(address);
        if counted.is_none() {
            let most = self.settings.max_client_connections;
            let message = format!("this client has {most} connections, which is the most");
            let error = Error::new(ErrorKind::TooMany, message, "");
            self.refusals.log(&error, address, "", &Method::CONNECT, "");
        }
        counted.map(Some)
    }

    /// Counts a stream or a waiting request of a client.
    pub(crate) fn stream_permit(&self, client: IpAddr) -> Result<StreamPermit, Error> {
        let hint = "try again later, or without `wait`";
        let Some(_client) = self.client_streams.count(client) else {
            let most = self.settings.max_client_streams;
            let message = format!("this client has {most} streams and waiting requests, which is the most");
            return Err(Error::new(ErrorKind::TooMany, message, hint));
        };
        let _all = Arc::clone(&self.streams).try_acquire_owned().map_err(|_| {
            let message = "too many streams and waiting requests are open";
            Error::new(ErrorKind::Unavailable, message, hint)
        })?;
        Ok(StreamPermit { _all, _client })
    }

    /// Finds out where a request comes from, and refuses it if too many come from there.
    fn admit(&self, request: &Request, is_worker: bool) -> Result<Client, (Option<IpAddr>, Error)> {
        let (settings, headers) = (&self.settings, request.headers());
        let peer = request.extensions().get::<Peer>().copied();
        let Peer { address, is_tls } =
            peer.ok_or_else(|| (None, Error::internal(&"a request without a connection")))?;
        let client = client::client(settings, address, is_tls, headers);
        let (rate, times) = if is_worker { (&self.worker_rate, WORKER_RATE) } else { (&self.rate, 1) };
        if !rate.admit(client.address, Instant::now()) {
            let most = settings.rate.saturating_mul(times);
            let error = Error::new(
                ErrorKind::TooMany,
                format!("this client sends more than {most} requests per second"),
                "send fewer, or many jobs with one request",
            );
            return Err((Some(client.address), error));
        }
        Ok(client)
    }

    fn check_addressee(&self, request: &Request, client: Client) -> Result<(), Error> {
        let (settings, headers) = (&self.settings, request.headers());
        let host = client::check_host(settings, request.uri(), headers)?;
        client::check_origin(&host, client.is_secure, headers)?;
        client::check_not_forwarded(settings, headers)
    }

    async fn permit(&self) -> Result<Permit, Error> {
        let counted = Arc::clone(&self.requests).acquire_owned().await;
        let counted = counted.map_err(|error| Error::internal(&error))?;
        Ok(Permit { counted: Mutex::new(Some(counted)), is_unlimited: watch::channel(false).0 })
    }
}

#[cfg(test)]
impl StreamPermit {
    pub(crate) fn for_test() -> StreamPermit {
        let _all = Arc::new(Semaphore::new(1)).try_acquire_owned().expect("there is one");
        StreamPermit { _all, _client: PerClient::new(0).count([127, 0, 0, 1].into()).expect("no limit") }
    }
}

impl Permit {
    /// Of a request that counts among none.
    pub(crate) fn none() -> Permit {
        Permit { counted: Mutex::new(None), is_unlimited: watch::channel(true).0 }
    }

    /// Stops counting the request among those that run, and stops limiting its time.
    pub(crate) fn release(&self) {
        self.limits_itself();
        self.counted.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Stops limiting the time of the request: from now on its handler does.
    pub(crate) fn limits_itself(&self) {
        self.is_unlimited.send_replace(true);
    }
}

/// The router of all routes.
pub(crate) fn router(shared: &Arc<Shared>) -> Router {
    let mut paths: Vec<(&'static str, MethodRouter)> = Vec::new();
    for route in routes().into_iter().chain(pages::routes()) {
        let path = route.path;
        let filter = MethodFilter::try_from(route.method.clone()).unwrap_or(MethodFilter::GET);
        let (route, shared) = (Arc::new(route), Arc::clone(shared));
        let handler = move |request: Request| handle(Arc::clone(&shared), Arc::clone(&route), request);
        match paths.iter_mut().find(|(known, _)| *known == path) {
            Some((_, methods)) => *methods = std::mem::take(methods).on(filter, handler),
            None => paths.push((path, on(filter, handler))),
        }
    }
    let router = paths.into_iter().fold(Router::new(), |router, (path, methods)| router.route(path, methods));
    router
        .fallback(async |request: Request| {
            let error =
                Error::new(ErrorKind::NotFound, "there is no such path", "GET /openapi.json has all paths");
            finish(pages::no_such_page(request.headers(), error.about(PATH)))
        })
        .method_not_allowed_fallback(async || {
            let hint = "GET /openapi.json has the methods of every path";
            let error = Error::new(ErrorKind::MethodNotAllowed, "the path does not have this method", hint);
            finish(error.into_response())
        })
}

/// Answers a request. Nothing that a handler does ends the connection: a panic is an error 500.
async fn handle(shared: Arc<Shared>, route: Arc<Route>, request: Request) -> Response<Body> {
    let started = Instant::now();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let (headers, uri) = (request.headers().clone(), request.uri().clone());
    let answering = AssertUnwindSafe(answer(&shared, &route, request)).catch_unwind();
    let Answered { client, author, result } = answering.await.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        let result = Err(Error::internal(&format!("a handler panicked: {text}")));
        Answered { client: None, author: None, result }
    });
    let author = author.unwrap_or_default();
    // Who opens a page without a login is asked for one.
    let is_asked = |error: &Error| route.access.is_page() && error.kind() == ErrorKind::Unauthorized;
    if let (Err(error), Some(client)) = (&result, client)
        && !is_asked(error)
    {
        shared.refusals.log(error, client, &author, &method, &path);
    }
    let response = match result {
        Ok(reply) => reply.into_response(&headers, method == Method::GET && route.tagged),
        Err(error) if route.access.is_page() => pages::trouble(&headers, &uri, method == Method::GET, error),
        Err(error) => error.into_response(),
    };
    let (status, elapsed) = (response.status().as_u16(), started.elapsed());
    // Workers send calls all the time.
    if method == Method::GET || route.access == Access::Needs(Permission::Work) {
        tracing::debug!(%method, path, status, author, ?elapsed, "answered");
    } else {
        tracing::info!(%method, path, status, author, ?elapsed, "answered");
    }
    finish(response)
}

/// The version of the server: by it clients know that they talk to Windlass, and to which.
const VERSION: HeaderName = HeaderName::from_static("windlass-version");

/// Headers of every response.
fn finish(mut response: Response<Body>) -> Response<Body> {
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // Files of the dashboard that never change have said so themselves.
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
    headers.insert(VERSION, HeaderValue::from_static(env!("CARGO_PKG_VERSION")));
    response
}

/// The answer to a request, and from whom that was.
struct Answered {
    client: Option<IpAddr>,
    /// Who sent it; or the name of a token that is not accepted any more.
    author: Option<String>,
    result: Result<Reply, Error>,
}

async fn answer(shared: &Arc<Shared>, route: &Route, request: Request) -> Answered {
    let is_worker = route.access == Access::Needs(Permission::Work);
    let client = match shared.admit(&request, is_worker) {
        Ok(client) => client,
        Err((client, error)) => return Answered { client, author: None, result: Err(error) },
    };
    let address = Some(client.address);
    let refused = |error, author| Answered { client: address, author, result: Err(error) };
    let permission = match route.access {
        Access::Probe => None,
        access => {
            if let Err(error) = shared.check_addressee(&request, client) {
                return refused(error, None);
            }
            access.permission()
        }
    };
    let principal = match permission {
        None => Principal::nobody(),
        Some(permission) => {
            let headers = request.headers();
            match authenticate(shared, route, headers, client).await {
                Err(Refused { error, token }) => return refused(error, token),
                Ok(known) => match known.check(permission) {
                    Err(error) => return refused(error, Some(known.author)),
                    Ok(()) => known,
                },
            }
        }
    };
    let author = Some(principal.author.clone());
    let result = run(shared, route, principal, client, request).await;
    #[cfg(feature = "check-answers")]
    if let Ok(reply) = &result {
        crate::answers::check::reply(route, reply);
    }
    Answered { client: address, author, result }
}

/// Finds out who sends a request: the bearer of a token, or on pages also whoever is logged in.
async fn authenticate(
    shared: &Shared,
    route: &Route,
    headers: &HeaderMap,
    client: Client,
) -> Result<Principal, Refused> {
    if route.access.is_page()
        && let Some(principal) = pages::session::principal(&shared.operator, headers, client.address).await?
    {
        return Ok(principal);
    }
    let (settings, operator) = (&shared.settings, &shared.operator);
    shared.token_checks.authenticate(settings, operator, headers, client.address).await
}

/// Runs the handler of a route, as long as it may take.
async fn run(
    shared: &Arc<Shared>,
    route: &Route,
    principal: Principal,
    from: Client,
    request: Request,
) -> Result<Reply, Error> {
    let Settings { request_timeout: limit, read_timeout, body_limit, .. } = shared.settings;
    let late = || {
        let message = format!("the request took longer than {limit:?}");
        Error::new(ErrorKind::Timeout, message, "request less; before you repeat it, check what it has done")
    };
    let (mut parts, body) = request.into_parts();
    let path = axum::RequestPartsExt::extract::<RawPathParams>(&mut parts).await;
    let path =
        path.map_err(|error| Error::invalid(format!("the path is wrong: {error}"), "encode it as UTF-8"))?;
    let path: Vec<(String, String)> =
        path.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let is_worker = route.access == Access::Needs(Permission::Work);
    let body_limit = if is_worker { shared.workers.body_limit } else { body_limit };
    // A slow body takes no place of a request that runs.
    let reading = shared.bodies.read(body, body_limit, from.address, read_timeout);
    let (body, room) = tokio::time::timeout(limit, reading).await.map_err(|_| late())??;
    let permit = tokio::time::timeout(limit, shared.permit()).await.map_err(|_| late())??;
    let mut is_unlimited = permit.is_unlimited.subscribe();
    let (uri, headers) = (parts.uri, parts.headers);
    let Client { address, is_secure } = from;
    // Dropped with this future, when the client closes its connection.
    let (_client, client) = watch::channel(());
    let call = Call {
        shared: Arc::clone(shared),
        principal,
        path,
        uri,
        headers,
        body,
        permit,
        client,
        address,
        is_secure,
        _room: room,
    };
    let handling = (route.handler)(call);
    let unlimited = async move {
        // If the sender is gone, so is the handler: its answer is ready.
        let _ = is_unlimited.wait_for(|is_unlimited| *is_unlimited).await;
    };
    let too_late = async move {
        tokio::select! {
            () = tokio::time::sleep(limit) => {}
            () = unlimited => std::future::pending().await,
        }
    };
    if parts.method.is_safe() {
        return unless(too_late, handling).await.unwrap_or_else(|| Err(late()));
    }
    // A change goes on if its client has gone: what it has begun, and its entry in the audit log, is completed.
    let mut task = tokio::spawn(handling);
    let Some(ended) = unless(too_late, &mut task).await else {
        task.abort();
        return Err(late());
    };
    if route.access != Access::Needs(Permission::Work) {
        // Jobs may have become ready by it.
        shared.workers.gates.poke();
    }
    match ended.map_err(tokio::task::JoinError::try_into_panic) {
        Ok(answer) => answer,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        Err(Err(error)) => Err(Error::internal(&error)),
    }
}

/// What a future returns, unless another one ends before it.
async fn unless<T>(other: impl Future<Output = ()>, future: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        value = future => Some(value),
        () = other => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::http::StatusCode;
    use http_body_util::BodyExt;

    use super::*;

    /// Sends a request to a route of this handler, on a server without tokens on loopback.
    async fn status<F>(
        method: Method,
        handler: impl Fn(Call) -> F + Send + Sync + 'static,
    ) -> (StatusCode, String)
    where
        F: Future<Output = Result<Reply, Error>> + Send + 'static,
    {
        let engine = Engine::open("memory:").await.expect("an engine");
        let settings = Settings { request_timeout: Duration::from_millis(20), ..Settings::default() };
        let address = settings.listen;
        let (_stop, stopping) = watch::channel(false);
        let shared = Shared::new(engine, settings, address, stopping);
        let access = Access::Needs(Permission::Read);
        let route = Arc::new(Route::new(method.clone(), "/test", access, "test", "A test", handler));
        let request = Request::builder().method(method).uri("/test").header("host", "localhost");
        let mut request = request.body(Body::empty()).expect("a request");
        request.extensions_mut().insert(Peer { address, is_tls: false });
        let answering = move |request: Request| handle(Arc::clone(&shared), Arc::clone(&route), request);
        let router: Router = Router::new().fallback(answering);
        let service = hyper_util::service::TowerToHyperService::new(router);
        let response = hyper::service::Service::call(&service, request).await.expect("an answer");
        let status = response.status();
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    #[tokio::test]
    async fn a_panic_is_an_error_that_tells_nothing() {
        for method in [Method::GET, Method::POST] {
            let (status, body) = status(method, async |_| panic!("the secret")).await;
            assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
            assert!(body.contains("\"internal\"") && !body.contains("secret"), "{body}");
        }
    }

    #[tokio::test]
    async fn a_client_has_a_limited_number_of_connections() {
        let engine = Engine::open("memory:").await.expect("an engine");
        let trusted_proxies = vec!["10.9.0.0/16".parse().expect("a network")];
        let settings = Settings { max_client_connections: 2, trusted_proxies, ..Settings::default() };
        let (address, (_stop, stopping)) = (settings.listen, watch::channel(false));
        let shared = Shared::new(engine, settings, address, stopping);
        let connect = |peer: &str| shared.count_connection(peer.parse().expect("an address"));
        let held = [connect("10.0.0.1:1"), connect("10.0.0.1:2")];
        assert!(held.iter().all(Option::is_some));
        assert!(connect("10.0.0.1:3").is_none() && connect("10.0.0.2:1").is_some());
        for free in ["127.0.0.1:1", "10.9.1.2:1", "[::1]:1"] {
            let many: Vec<_> = (0..5).map(|_| connect(free)).collect();
            assert!(many.iter().all(Option::is_some), "{free}");
        }
        drop(held);
        assert!(connect("10.0.0.1:4").is_some());
    }

    #[tokio::test]
    async fn a_request_that_waits_has_the_limit_until_then() {
        for method in [Method::GET, Method::POST] {
            let waiting = async |call: Call| {
                let _permit = call.start_waiting()?;
                tokio::time::sleep(Duration::from_millis(100)).await;
                Ok(Reply::Text("text/plain", "waited".into()))
            };
            let (status, body) = status(method, waiting).await;
            assert_eq!((status, body.as_str()), (StatusCode::OK, "waited"));
        }
    }

    #[tokio::test]
    async fn a_request_that_takes_too_long_is_given_up() {
        for method in [Method::GET, Method::POST] {
            let (status, body) = status(method, async |_| std::future::pending().await).await;
            assert_eq!(status, StatusCode::GATEWAY_TIMEOUT, "{body}");
        }
    }
}
