//! What is between a worker and a server: a proxy that loses answers, cuts connections, delays, and fails by itself.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// What happens to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    None,
    /// It reaches the server, whose answer is lost: the connection is closed.
    AnswerLost,
    /// It reaches the server, and half of the answer reaches the worker.
    AnswerCut,
    /// It does not reach the server.
    RequestLost,
    /// Half of it reaches the server.
    RequestCut,
    /// It reaches the server, and the proxy answers 502 all the same.
    BadGatewayAfter,
    /// The proxy answers 502, 503 or 504 without the server, with a page of its own.
    BadGateway,
    /// It waits a while, both ways.
    Delayed,
}

impl Fault {
    const ALL: [Fault; 7] = [
        Fault::AnswerLost,
        Fault::AnswerCut,
        Fault::RequestLost,
        Fault::RequestCut,
        Fault::BadGatewayAfter,
        Fault::BadGateway,
        Fault::Delayed,
    ];
}

/// A proxy that meets one in so many requests with a fault.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

struct Shared {
    server: Mutex<SocketAddr>,
    /// One in how many requests meets a fault; 0 for none.
    every: AtomicU64,
    requests: AtomicU64,
    /// How often each fault was met.
    met: Mutex<Vec<Fault>>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Proxy {
    pub(crate) async fn start(server: SocketAddr, every: u64) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (requests, met) = Default::default();
        let shared =
            Arc::new(Shared { server: Mutex::new(server), every: AtomicU64::new(every), requests, met });
        let serving = Arc::clone(&shared);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(Arc::clone(&serving), stream));
            }
        });
        Proxy { address, shared, accepting }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sends requests to another server from now on, as a load balancer does.
    pub(crate) fn redirect(&self, server: SocketAddr) {
        *self.shared.server.lock().unwrap_or_else(PoisonError::into_inner) = server;
    }

    /// One in `every` requests meets a fault from now on.
    pub(crate) fn set_every(&self, every: u64) {
        self.shared.every.store(every, Ordering::Relaxed);
    }

    /// Which faults were met.
    pub(crate) fn met(&self) -> Vec<Fault> {
        self.shared.met.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Shared {
    /// The fault of the next request: each in turn.
    fn next_fault(&self) -> Fault {
        let every = self.every.load(Ordering::Relaxed);
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        if every == 0 || number % every != every - 1 {
            return Fault::None;
        }
        let fault = Fault::ALL[(number / every) as usize % Fault::ALL.len()];
        self.met.lock().unwrap_or_else(PoisonError::into_inner).push(fault);
        fault
    }
}

/// Serves a connection of a worker until a fault ends it.
async fn serve(shared: Arc<Shared>, stream: TcpStream) {
    let (read, mut worker) = stream.into_split();
    let mut worker_reads = BufReader::new(read);
    let address = *shared.server.lock().unwrap_or_else(PoisonError::into_inner);
    let Ok(server) = TcpStream::connect(address).await else {
        // The proxy runs, and the server does not.
        if read_message(&mut worker_reads).await.is_some() {
            let _ = worker.write_all(page(503).as_bytes()).await;
        }
        return;
    };
    let (read, mut server) = server.into_split();
    let mut server_reads = BufReader::new(read);
    while let Some(request) = read_message(&mut worker_reads).await {
        let fault = shared.next_fault();
        match fault {
            Fault::RequestLost => return,
            Fault::RequestCut => {
                let _ = server.write_all(&request[..request.len() / 2]).await;
                return;
            }
            Fault::BadGateway => {
                let status = 502 + shared.requests.load(Ordering::Relaxed) % 3;
                if worker.write_all(page(status).as_bytes()).await.is_err() {
                    return;
                }
                continue;
            }
            Fault::Delayed => tokio::time::sleep(Duration::from_millis(20)).await,
            _ => {}
        }
        if server.write_all(&request).await.is_err() {
            return;
        }
        let Some(answer) = read_message(&mut server_reads).await else { return };
        let sent = match fault {
            Fault::AnswerLost => return,
            Fault::AnswerCut => {
                let _ = worker.write_all(&answer[..answer.len() / 2]).await;
                return;
            }
            Fault::BadGatewayAfter => worker.write_all(page(502).as_bytes()).await,
            _ => worker.write_all(&answer).await,
        };
        if sent.is_err() {
            return;
        }
    }
}

/// An answer of the proxy itself.
fn page(status: u64) -> String {
    let body = "<html>the server cannot be reached</html>";
    format!(
        "HTTP/1.1 {status} Oops\r\ncontent-type: text/html\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Reads a request or an answer with its body; `None` at the end of the connection.
async fn read_message<S: AsyncBufReadExt + Unpin>(stream: &mut S) -> Option<Vec<u8>> {
    let (mut message, mut length) = (Vec::new(), 0);
    loop {
        let begin = message.len();
        if stream.read_until(b'\n', &mut message).await.ok()? == 0 {
            return None;
        }
        let line = std::str::from_utf8(&message[begin..]).ok()?.trim_end();
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok()?;
        }
    }
    let begin = message.len();
    message.resize(begin + length, 0);
    stream.read_exact(&mut message[begin..]).await.ok()?;
    Some(message)
}
