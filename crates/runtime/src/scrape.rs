//! Answering those who watch: a small HTTP server with two pages, `/metrics` and `/healthz`.
//!
//! It runs on a thread of its own: a worker whose handlers block every thread of the program is one that people want to
//! look at. Whatever a client does costs one of few places for a bounded time: the request is short, reading it and
//! writing the answer end in time, and every answer closes the connection.

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

use crate::{Telemetry, sampler::StoreSampler};

/// The longest request that is read: a line and some headers.
const LONGEST: usize = 8 << 10;
/// How long a client may take to send its request, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many clients are answered at once; the next ones wait to be accepted.
const CLIENTS: usize = 32;

/// A server, until this is dropped.
pub(crate) struct Server {
    _stop: oneshot::Sender<()>,
}

impl Server {
    /// Listens at `addr`; answers where that is (port 0 takes any that is free).
    pub(crate) fn start(addr: &str, telemetry: &Arc<Telemetry>) -> io::Result<(Server, SocketAddr)> {
        let listener = std::net::TcpListener::bind(addr)?;
        listener.set_nonblocking(true)?;
        let bound = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let telemetry = Arc::downgrade(telemetry);
        std::thread::Builder::new().name("windlass-metrics".into()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = run(listener, telemetry) => {}
                    _ = stopped => {}
                }
            });
            // Not waited for: a look at a store that hangs.
            runtime.shutdown_background();
        })?;
        Ok((Server { _stop: stop }, bound))
    }
}

async fn run(listener: std::net::TcpListener, telemetry: Weak<Telemetry>) {
    let (Ok(listener), Some(lookout)) = (TcpListener::from_std(listener), sampler(&telemetry)) else {
        return;
    };
    let places = Arc::new(Semaphore::new(CLIENTS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((client, _)) => {
                let (telemetry, lookout) = (telemetry.clone(), Arc::clone(&lookout));
                tokio::spawn(async move {
                    tick(client, &telemetry, &lookout).await;
                    drop(place);
                });
            }
            Err(error) => {
                // Too many open files, most likely: they will be fewer.
                tracing::debug!(%error, "a client of /metrics could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// This thread's own look at the store: connections belong to the runtime that opened them.
fn sampler(telemetry: &Weak<Telemetry>) -> Option<Arc<StoreSampler>> {
    Some(Arc::new(telemetry.upgrade()?.sampler()))
}

/// One client: its request, its answer, its end.
async fn tick(mut client: TcpStream, telemetry: &Weak<Telemetry>, lookout: &StoreSampler) {
    let request = match tokio::time::timeout(PATIENCE, read(&mut client)).await {
        Ok(Ok(request)) => request,
        // Gone, or slow: there is nobody to tell.
        Ok(Err(_)) | Err(_) => return,
    };
    let answer = answer(request.as_deref(), telemetry, lookout).await;
    let _ = tokio::time::timeout(PATIENCE, async {
        client.write_all(answer.as_bytes()).await?;
        client.shutdown().await?;
        // What the client still sends is read, a little: closing on unread bytes may take the answer with it.
        client.take(4 * LONGEST as u64).read_to_end(&mut Vec::new()).await
    })
    .await;
}

/// Reads up to the end of the headers; `None` if that is too far away.
async fn read(client: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let mut request = Vec::with_capacity(1 << 10);
    let ends = |request: &[u8]| request.windows(4).any(|end| end == b"\r\n\r\n");
    while !ends(&request) {
        if request.len() >= LONGEST {
            return Ok(None);
        }
        if client.read_buf(&mut request).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(Some(request))
}

const PLAIN: &str = "text/plain; charset=utf-8";

async fn answer(request: Option<&[u8]>, telemetry: &Weak<Telemetry>, lookout: &StoreSampler) -> String {
    let Some((method, path)) = request.and_then(target) else {
        return response("400 Bad Request", PLAIN, "This is not a request; GET /metrics is.\n");
    };
    if !["/metrics", "/healthz"].contains(&path) {
        return response("404 Not Found", PLAIN, "There are /metrics and /healthz.\n");
    }
    if method != "GET" {
        return response("405 Method Not Allowed\r\nAllow: GET", PLAIN, "Use GET.\n");
    }
    let Some(telemetry) = telemetry.upgrade() else {
        return response("503 Service Unavailable", PLAIN, "The engine is gone.\n");
    };
    match (path, telemetry.is_healthy()) {
        ("/healthz", true) => response("200 OK", PLAIN, "ok\n"),
        ("/healthz", false) => {
            response("503 Service Unavailable", PLAIN, "No worker works here, or its lease has run out.\n")
        }
        _ => response("200 OK", "text/plain; version=0.0.4; charset=utf-8", &telemetry.page(lookout).await),
    }
}

/// The method and the path of a request's first line.
fn target(request: &[u8]) -> Option<(&str, &str)> {
    let end = request.windows(2).position(|end| end == b"\r\n")?;
    let line = std::str::from_utf8(&request[..end]).ok()?;
    let mut words = line.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    let is_word = !method.is_empty() && method.bytes().all(|letter| letter.is_ascii_uppercase());
    if !is_word || !target.starts_with('/') || !version.starts_with("HTTP/1.") || words.next().is_some() {
        return None;
    }
    Some((method, target.split_once('?').map_or(target, |(path, _)| path)))
}

fn response(status: &str, kind: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_understood_or_refused() {
        let of = |line: &str| target(format!("{line}\r\n\r\n").as_bytes()).map(|(m, p)| format!("{m} {p}"));
        assert_eq!(of("GET /metrics HTTP/1.1").as_deref(), Some("GET /metrics"));
        assert_eq!(of("POST /metrics?a=b HTTP/1.0").as_deref(), Some("POST /metrics"));
        for bad in ["", "GET", "GET /metrics", "GET  /metrics HTTP/1.1", "get /metrics HTTP/1.1"] {
            assert_eq!(of(bad), None, "{bad:?}");
        }
        for bad in ["GET metrics HTTP/1.1", "GET /metrics HTTP/2", "GET /a b HTTP/1.1", "G\u{1f}T / HTTP/1.1"]
        {
            assert_eq!(of(bad), None, "{bad:?}");
        }
        assert_eq!(target(b"\xff\xfe /metrics HTTP/1.1\r\n\r\n"), None);
    }
}
