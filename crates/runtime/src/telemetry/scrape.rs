//! A small HTTP server with two pages, `/metrics` and `/healthz`.
//!
//! It runs on a thread of its own, so that it answers also while handlers block every other thread of the program: that
//! is when its metrics matter. A client can occupy one of few connections for a bounded time: requests are short, reading
//! and writing have a timeout, and every response closes the connection.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, oneshot},
};
use windlass_env::Env;

use super::{Telemetry, sampler::StoreSampler};

/// The longest request that is read, in bytes: a line and some headers.
const MAX_REQUEST: usize = 8 << 10;
/// How long a client may take to send its request, and to read the response.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);
/// How many clients are served at once; further ones wait to be accepted.
const MAX_CLIENTS: usize = 32;

/// A running server. It stops when this is dropped.
pub(crate) struct Server {
    _stop: oneshot::Sender<()>,
}

impl Server {
    /// Listens at `addr`. Returns the address too, since port 0 takes a free port.
    pub(crate) fn start(addr: &str, telemetry: &Arc<Telemetry>) -> io::Result<(Server, SocketAddr)> {
        let listener = std::net::TcpListener::bind(addr)?;
        listener.set_nonblocking(true)?;
        let bound = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let (env, telemetry) = (telemetry.env().clone(), Arc::downgrade(telemetry));
        // When it stops, it does not wait for a read from a store that hangs.
        env.clone().spawn_thread("windlass-metrics", move || async move {
            tokio::select! {
                () = run(&env, listener, telemetry) => {}
                _ = stopped => {}
            }
        })?;
        Ok((Server { _stop: stop }, bound))
    }
}

async fn run(env: &Env, listener: std::net::TcpListener, telemetry: Weak<Telemetry>) {
    let (Ok(listener), Some(sampler)) = (TcpListener::from_std(listener), new_sampler(&telemetry)) else {
        return;
    };
    let permits = Arc::new(Semaphore::new(MAX_CLIENTS));
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((client, _)) => {
                let (telemetry, sampler, clock) = (telemetry.clone(), Arc::clone(&sampler), env.clone());
                env.spawn(async move {
                    tick(&clock, client, &telemetry, &sampler).await;
                    drop(permit);
                });
            }
            Err(error) => {
                // Most likely too many open files, which passes.
                tracing::debug!(%error, "a client of /metrics could not be accepted");
                env.sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// A sampler for this thread alone, because connections belong to the runtime that opened them.
fn new_sampler(telemetry: &Weak<Telemetry>) -> Option<Arc<StoreSampler>> {
    Some(Arc::new(telemetry.upgrade()?.new_sampler()))
}

/// Serves one client: reads its request, and writes the response.
async fn tick(env: &Env, mut client: TcpStream, telemetry: &Weak<Telemetry>, sampler: &StoreSampler) {
    let request = match env.timeout(CLIENT_TIMEOUT, read(&mut client)).await {
        Ok(Ok(request)) => request,
        // The client is gone or too slow for a response.
        Ok(Err(_)) | Err(_) => return,
    };
    let response = respond(request.as_deref(), telemetry, sampler).await;
    let _ = env
        .timeout(CLIENT_TIMEOUT, async {
            client.write_all(response.as_bytes()).await?;
            client.shutdown().await?;
            // Reads some of what the client still sends: closing with unread bytes may destroy the response.
            client.take(4 * MAX_REQUEST as u64).read_to_end(&mut Vec::new()).await
        })
        .await;
}

/// Reads up to the end of the headers; `None` if the request is too long.
async fn read(client: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let mut request = Vec::with_capacity(1 << 10);
    let is_complete = |request: &[u8]| request.windows(4).any(|end| end == b"\r\n\r\n");
    while !is_complete(&request) {
        if request.len() >= MAX_REQUEST {
            return Ok(None);
        }
        if client.read_buf(&mut request).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(Some(request))
}

const PLAIN: &str = "text/plain; charset=utf-8";

async fn respond(request: Option<&[u8]>, telemetry: &Weak<Telemetry>, sampler: &StoreSampler) -> String {
    let Some((method, path)) = request.and_then(target) else {
        return response("400 Bad Request", PLAIN, "This is not an HTTP request; use GET /metrics.\n");
    };
    if !["/metrics", "/healthz"].contains(&path) {
        return response("404 Not Found", PLAIN, "Not found; use /metrics or /healthz.\n");
    }
    if method != "GET" {
        return response("405 Method Not Allowed\r\nAllow: GET", PLAIN, "Use GET.\n");
    }
    let Some(telemetry) = telemetry.upgrade() else {
        return response("503 Service Unavailable", PLAIN, "The engine has stopped.\n");
    };
    match (path, telemetry.is_healthy()) {
        ("/healthz", true) => response("200 OK", PLAIN, "ok\n"),
        ("/healthz", false) => {
            response("503 Service Unavailable", PLAIN, "No worker runs here, or its lease has run out.\n")
        }
        _ => response("200 OK", "text/plain; version=0.0.4; charset=utf-8", &telemetry.page(sampler).await),
    }
}

/// The method and the path of a request's first line.
fn target(request: &[u8]) -> Option<(&str, &str)> {
    let end = request.windows(2).position(|end| end == b"\r\n")?;
    let line = std::str::from_utf8(&request[..end]).ok()?;
    let mut words = line.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    let is_method = !method.is_empty() && method.bytes().all(|letter| letter.is_ascii_uppercase());
    if !is_method || !target.starts_with('/') || !version.starts_with("HTTP/1.") || words.next().is_some() {
        return None;
    }
    Some((method, target.split_once('?').map_or(target, |(path, _)| path)))
}

fn response(status: &str, content_type: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_request_line_is_refused() {
        let parsed =
            |line: &str| target(format!("{line}\r\n\r\n").as_bytes()).map(|(m, p)| format!("{m} {p}"));
        assert_eq!(parsed("GET /metrics HTTP/1.1").as_deref(), Some("GET /metrics"));
        assert_eq!(parsed("POST /metrics?a=b HTTP/1.0").as_deref(), Some("POST /metrics"));
        for bad in ["", "GET", "GET /metrics", "GET  /metrics HTTP/1.1", "get /metrics HTTP/1.1"] {
            assert_eq!(parsed(bad), None, "{bad:?}");
        }
        for bad in ["GET metrics HTTP/1.1", "GET /metrics HTTP/2", "GET /a b HTTP/1.1", "G\u{1f}T / HTTP/1.1"]
        {
            assert_eq!(parsed(bad), None, "{bad:?}");
        }
        assert_eq!(target(b"\xff\xfe /metrics HTTP/1.1\r\n\r\n"), None);
    }
}
