//! The path of a request: where it comes from, who sends it, whether it may, how long it may take.

use std::{
    net::SocketAddr,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{RawPathParams, Request},
    http::{HeaderMap, HeaderName, HeaderValue, Method, Response, header},
    routing::{MethodFilter, MethodRouter, on},
};
use futures_util::FutureExt;
use http_body_util::{BodyExt, Limited};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use windlass::{Engine, model::Permission, operate::Operator};

use crate::{
    access::{self, Principal},
    call::Call,
    client::{self, Client},
    error::{Error, ErrorKind, PATH},
    events::Hub,
    pages::{self, Pages},
    rate::RateLimiter,
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
    rate: RateLimiter,
    /// The same for workers, which send calls all the time.
    worker_rate: RateLimiter,
    requests: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    /// What pages share.
    pub(crate) pages: Pages,
}

/// The other end of a request's connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    pub(crate) is_tls: bool,
}

/// Counts a request among those that run. A request that waits exchanges it for one of a stream.
pub(crate) struct Permit(Mutex<Option<OwnedSemaphorePermit>>);

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
        let (rate, worker_rate, requests, streams) = (
            RateLimiter::new(settings.rate),
            RateLimiter::new(settings.rate.saturating_mul(WORKER_RATE)),
            Arc::new(Semaphore::new(settings.max_requests)),
            Arc::new(Semaphore::new(settings.max_streams)),
        );
        let shared = Arc::new(Shared {
            engine,
            operator,
            settings,
            address,
            events,
            stopping,
            workers,
            rate,
            worker_rate,
            requests,
            streams,
            pages,
        });
        tokio::spawn(Arc::clone(&shared.pages.live).run(Arc::clone(&shared)));
        shared
    }

    /// Waits until the server stops.
    pub(crate) async fn stopped(&self) {
        // The sender lives as long as the server.
        let _ = self.stopping.clone().wait_for(|stopping| *stopping).await;
    }

    /// Counts a stream or a waiting request.
    pub(crate) fn stream_permit(&self) -> Result<OwnedSemaphorePermit, Error> {
        Arc::clone(&self.streams).try_acquire_owned().map_err(|_| {
            let message = "too many streams and waiting requests are open";
            Error::new(ErrorKind::Unavailable, message, "try again later, or without `wait`")
        })
    }

    /// Finds out where a request comes from, and refuses it if too many come from there.
    fn admit(&self, request: &Request, is_worker: bool) -> Result<Client, Error> {
        let (settings, headers) = (&self.settings, request.headers());
        let peer = request.extensions().get::<Peer>().copied();
        let Peer { address, is_tls } =
            peer.ok_or_else(|| Error::internal(&"a request without a connection"))?;
        let client = client::client(settings, address, is_tls, headers);
        let (rate, times) = if is_worker { (&self.worker_rate, WORKER_RATE) } else { (&self.rate, 1) };
        if !rate.admit(client.address, Instant::now()) {
            return Err(Error::new(
                ErrorKind::TooMany,
                format!(
                    "this client sends more than {} requests per second",
                    settings.rate.saturating_mul(times)
                ),
                "send fewer, or many jobs with one request",
            ));
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
        let permit = Arc::clone(&self.requests).acquire_owned().await;
        permit.map(|permit| Permit(Mutex::new(Some(permit)))).map_err(|error| Error::internal(&error))
    }

    /// Reads the body, unless it is too large or too slow.
    async fn read_body(&self, body: Body, body_limit: usize) -> Result<Bytes, Error> {
        let Settings { read_timeout, .. } = self.settings;
        let read = tokio::time::timeout(read_timeout, Limited::new(body, body_limit).collect()).await;
        let slow = |_| {
            let message = format!("the body did not arrive within {read_timeout:?}");
            Error::new(ErrorKind::SlowBody, message, "send it faster, or in parts")
        };
        match read.map_err(slow)? {
            Ok(collected) => Ok(collected.to_bytes()),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(Error::new(
                ErrorKind::TooLarge,
                format!("the body has more than {body_limit} bytes"),
                "send less with one request",
            )),
            Err(error) => Err(Error::invalid(format!("the body cannot be read: {error}"), "send it again")),
        }
    }
}

impl Permit {
    /// Of a request that counts among none.
    pub(crate) fn none() -> Permit {
        Permit(Mutex::new(None))
    }

    /// Stops counting the request among those that run.
    pub(crate) fn release(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
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
    let (author, result) = answering.await.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        (None, Err(Error::internal(&format!("a handler panicked: {text}"))))
    });
    let response = match result {
        Ok(reply) => reply.into_response(&headers, method == Method::GET && route.tagged),
        Err(error) if route.access.is_page() => pages::trouble(&headers, &uri, method == Method::GET, error),
        Err(error) => error.into_response(),
    };
    let (status, elapsed) = (response.status().as_u16(), started.elapsed());
    let author = author.unwrap_or_default();
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

type Answered = (Option<String>, Result<Reply, Error>);

async fn answer(shared: &Arc<Shared>, route: &Route, request: Request) -> Answered {
    let is_worker = route.access == Access::Needs(Permission::Work);
    let client = match shared.admit(&request, is_worker) {
        Ok(client) => client,
        Err(error) => return (None, Err(error)),
    };
    let permission = match route.access {
        Access::Probe => None,
        access => {
            if let Err(error) = shared.check_addressee(&request, client) {
                return (None, Err(error));
            }
            access.permission()
        }
    };
    let principal = match permission {
        None => Principal::nobody(),
        Some(permission) => {
            let headers = request.headers();
            let known = authenticate(shared, route, headers, client);
            match known.await.and_then(|known| known.check(permission).map(|()| known)) {
                Ok(known) => known,
                Err(error) => return (None, Err(error)),
            }
        }
    };
    let author = Some(principal.author.clone());
    let answered = run(shared, route, principal, client, request).await;
    #[cfg(feature = "check-answers")]
    if let Ok(reply) = &answered {
        crate::answers::check::reply(route, reply);
    }
    (author, answered)
}

/// Finds out who sends a request: the bearer of a token, or on pages also whoever is logged in.
async fn authenticate(
    shared: &Shared,
    route: &Route,
    headers: &HeaderMap,
    client: Client,
) -> Result<Principal, Error> {
    if route.access.is_page()
        && let Some(principal) = pages::session::principal(&shared.operator, headers, client.address).await?
    {
        return Ok(principal);
    }
    access::authenticate(&shared.settings, &shared.operator, headers, client.address).await
}

/// Runs the handler of a route, as long as it may take.
async fn run(
    shared: &Arc<Shared>,
    route: &Route,
    principal: Principal,
    from: Client,
    request: Request,
) -> Result<Reply, Error> {
    let limit = shared.settings.request_timeout;
    let late = |_| {
        let message = format!("the request took longer than {limit:?}");
        Error::new(ErrorKind::Timeout, message, "request less; before you repeat it, check what it has done")
    };
    let (mut parts, body) = request.into_parts();
    let path = axum::RequestPartsExt::extract::<RawPathParams>(&mut parts).await;
    let path =
        path.map_err(|error| Error::invalid(format!("the path is wrong: {error}"), "encode it as UTF-8"))?;
    let path: Vec<(String, String)> =
        path.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let prepare = async {
        let permit = shared.permit().await?;
        let is_worker = route.access == Access::Needs(Permission::Work);
        let limit = if is_worker { shared.workers.body_limit } else { shared.settings.body_limit };
        let body = shared.read_body(body, limit).await?;
        Ok::<_, Error>((permit, body))
    };
    let (permit, body) = tokio::time::timeout(limit, prepare).await.map_err(late)??;
    let (uri, headers) = (parts.uri, parts.headers);
    // Dropped with this future, when the client closes its connection.
    let (_client, client) = watch::channel(());
    let Client { address, is_secure } = from;
    let call_shared = Arc::clone(shared);
    let call =
        Call { shared: call_shared, principal, path, uri, headers, body, permit, client, address, is_secure };
    let handling = (route.handler)(call);
    if parts.method.is_safe() {
        return if route.waits {
            handling.await
        } else {
            tokio::time::timeout(limit, handling).await.map_err(late)?
        };
    }
    // A change goes on if its client has gone: what it has begun, and its entry in the audit log, is completed.
    let mut task = tokio::spawn(handling);
    let ended = match route.waits {
        true => (&mut task).await,
        false => match tokio::time::timeout(limit, &mut task).await {
            Ok(ended) => ended,
            Err(elapsed) => {
                task.abort();
                return Err(late(elapsed));
            }
        },
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

#[cfg(test)]
mod tests {
    use std::{future::Future, time::Duration};

    use super::*;
    use axum::http::StatusCode;

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
    async fn a_request_that_takes_too_long_is_given_up() {
        for method in [Method::GET, Method::POST] {
            let (status, body) = status(method, async |_| std::future::pending().await).await;
            assert_eq!(status, StatusCode::GATEWAY_TIMEOUT, "{body}");
        }
    }
}
