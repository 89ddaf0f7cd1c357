//! The client against servers that do what servers do: keep connections, close them, stall, stream, and speak something else.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::ring},
};
use windlass_http::{Client, Error, Options, Request, StatusCode};

/// Reads one request, head and body. Returns its head; `None` if the client closed the connection.
async fn read_request<S: AsyncRead + Unpin>(stream: &mut S) -> Option<String> {
    let mut read = Vec::new();
    let head = loop {
        let byte = stream.read_u8().await.ok()?;
        read.push(byte);
        if read.ends_with(b"\r\n\r\n") {
            break String::from_utf8(read).expect("a head");
        }
    };
    let length =
        head.to_lowercase().lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await.ok()?;
    Some(head)
}

/// What a test server does on its connections: for each request, the bytes of the response; without one it closes the connection.
type Script = Vec<Vec<&'static str>>;

/// Serves connections one after the other. The heads of all requests are returned at the end of the script.
async fn serve(script: Script) -> (SocketAddr, tokio::task::JoinHandle<Vec<(usize, String)>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let address = listener.local_addr().expect("an address");
    let server = tokio::spawn(async move {
        let mut heads = Vec::new();
        for (number, answers) in script.into_iter().enumerate() {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            for answer in answers {
                let Some(head) = read_request(&mut stream).await else { break };
                heads.push((number, head));
                stream.write_all(answer.as_bytes()).await.expect("written");
            }
        }
        heads
    });
    (address, server)
}

fn client(address: SocketAddr) -> Client {
    let options = Options {
        token: Some("windlass_1_secret".into()),
        timeout: Duration::from_secs(5),
        ..Options::default()
    };
    Client::new(&format!("http://{address}/base"), options).expect("a client")
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]";

#[tokio::test]
async fn a_connection_serves_one_request_after_the_other() {
    let (address, server) =
        serve(vec![vec![OK, OK, "HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nnot"]]).await;
    let client = client(address);
    for _ in 0..2 {
        let response = client.send(Request::get("/v1/jobs?x=1")).await.expect("a response");
        assert_eq!(response.json::<Vec<u8>>().await.expect("JSON"), Vec::<u8>::new());
    }
    let request = Request::post("/v1/jobs").json(&[1]).expect("a body");
    let response = client.send(request).await.expect("a response");
    assert_eq!(
        (response.status(), &response.bytes().await.expect("a body")[..]),
        (StatusCode::NOT_FOUND, &b"not"[..])
    );
    let heads = server.await.expect("the server");
    assert!(heads.iter().all(|(connection, _)| *connection == 0), "{heads:?}");
    let first = heads[0].1.to_lowercase();
    assert!(first.starts_with("get /base/v1/jobs?x=1 http/1.1\r\n"), "{first}");
    assert!(
        first.contains(&format!("host: {address}\r\n"))
            && first.contains("authorization: bearer windlass_1_secret")
    );
}

#[tokio::test]
async fn a_connection_that_the_server_closed_is_replaced() {
    let (address, server) = serve(vec![vec![OK], vec![OK, OK]]).await;
    let client = client(address);
    for _ in 0..3 {
        client.send(Request::get("/")).await.expect("a response").bytes().await.expect("a body");
    }
    let connections: Vec<usize> =
        server.await.expect("the server").iter().map(|(number, _)| *number).collect();
    assert_eq!(connections, [0, 1, 1]);
}

#[tokio::test]
async fn a_change_that_may_have_arrived_is_sent_once_unless_it_is_repeatable() {
    // The second connection is closed after the request was read.
    let (address, server) = serve(vec![vec![""], vec![OK]]).await;
    let client = client(address);
    let post = || Request::post("/").json(&1).expect("a body");
    let error = client.send(post()).await.expect_err("no response");
    assert!(error.may_have_arrived() && error.is_retryable(), "{error}");
    client.send(post().repeatable()).await.expect("a response").bytes().await.expect("a body");
    assert_eq!(server.await.expect("the server").len(), 2);
}

#[tokio::test]
async fn what_takes_too_long_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let client = client(listener.local_addr().expect("an address"));
    let short = Request::get("/").timeout(Duration::from_millis(20));
    let error = client.send(short).await.expect_err("no response");
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
}

#[tokio::test]
async fn a_closed_port_and_another_protocol_are_different_errors() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let error = client(address).send(Request::get("/")).await.expect_err("nobody listens");
    assert!(matches!(error, Error::Connect { .. }) && !error.may_have_arrived(), "{error}");
    let (address, _server) = serve(vec![vec!["SSH-2.0-OpenSSH\r\n\r\n"]]).await;
    let error = client(address).send(Request::get("/")).await.expect_err("no HTTP");
    assert!(matches!(error, Error::NotHttp { .. }), "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[tokio::test]
async fn a_stream_of_events_is_read_as_it_arrives() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    let body = "8\r\ndata: 1\n\r\n9\r\n\ndata: 2\n\r\n1\r\n\n\r\n0\r\n\r\n";
    let answer: &'static str = Box::leak(format!("{head}{body}").into_boxed_str());
    let (address, server) = serve(vec![vec![answer, OK]]).await;
    let client = client(address);
    let mut events = client.send(Request::get("/v1/events")).await.expect("a response").events();
    for expected in ["1", "2"] {
        assert_eq!(events.next().await.expect("a stream").expect("an event").data, expected);
    }
    assert_eq!(events.next().await.expect("a stream"), None);
    client.send(Request::get("/")).await.expect("a response").bytes().await.expect("a body");
    assert_eq!(server.await.expect("the server").len(), 2, "the connection was used again");
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let (address, _server) = serve(vec![vec![OK]]).await;
    let options = Options { body_limit: 1, ..Options::default() };
    let client = Client::new(&format!("http://{address}"), options).expect("a client");
    let error = client.send(Request::get("/")).await.expect("a head").bytes().await.expect_err("too large");
    assert!(matches!(error, Error::TooLarge { limit: 1, .. }), "{error}");
}

/// A server with a certificate of its own for `localhost`. Returns its port and the file with the certificate.
async fn serve_tls(folder: &tempfile::TempDir) -> (u16, PathBuf) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, made.cert.pem()).expect("written");
    let key = made.signing_key.serialize_der().try_into().expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("a configuration");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            if let Ok(mut stream) = acceptor.accept(stream).await {
                answer(&mut stream).await;
            }
        }
    });
    (port, file)
}

async fn answer<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) {
    while read_request(stream).await.is_some() {
        stream.write_all(OK.as_bytes()).await.expect("written");
    }
}

#[tokio::test]
async fn a_private_authority_is_trusted_if_it_is_named_and_for_its_own_names_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let (port, ca) = serve_tls(&folder).await;
    let named = Options { ca_file: Some(ca), ..Options::default() };
    let send = async |host: &str, options: Options| {
        let client = Client::new(&format!("https://{host}:{port}"), options).expect("a client");
        client.send(Request::get("/")).await.map(|response| response.status())
    };
    assert_eq!(send("localhost", named.clone()).await.expect("a response"), StatusCode::OK);
    let error = send("127.0.0.1", named.clone()).await.expect_err("another name").to_string();
    assert!(error.contains("certificate is not for \"127.0.0.1\""), "{error}");
    let other = rcgen::generate_simple_self_signed(vec!["other".to_owned()]).expect("a certificate");
    let file = folder.path().join("other.pem");
    std::fs::write(&file, other.cert.pem()).expect("written");
    let wrong = Options { ca_file: Some(file), ..Options::default() };
    let error = send("localhost", wrong).await.expect_err("another authority").to_string();
    assert!(error.contains("trusted") && error.contains("--ca-file"), "{error}");
}

#[tokio::test]
async fn tls_to_a_server_without_it_says_so() {
    let (address, _server) = serve(vec![vec![OK]]).await;
    let folder = tempfile::tempdir().expect("a folder");
    let (_, ca) = serve_tls(&folder).await;
    let options =
        Options { ca_file: Some(ca), connect_timeout: Duration::from_secs(2), ..Options::default() };
    let client = Client::new(&format!("https://{address}"), options).expect("a client");
    let error = client.send(Request::get("/")).await.expect_err("no TLS");
    assert!(matches!(error, Error::Tls { .. } | Error::Connect { .. }), "{error}");
}

#[tokio::test]
async fn a_request_with_a_time_of_its_own_opens_its_connection_within_it() {
    // It accepts connections, and never says a word: TLS cannot begin.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let folder = tempfile::tempdir().expect("a folder");
    let (_, ca) = serve_tls(&folder).await;
    let day = Duration::from_secs(86_400);
    let options = Options { ca_file: Some(ca), connect_timeout: day, timeout: day, ..Options::default() };
    let url = format!("https://localhost:{}", listener.local_addr().expect("an address").port());
    let client = Client::new(&url, options).expect("a client");
    let request = Request::get("/").timeout(Duration::from_millis(20));
    let sent = tokio::time::timeout(Duration::from_secs(30), client.send(request)).await;
    let error = sent.expect("it gives up").expect_err("no answer");
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
}

#[test]
fn files_without_certificates_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let junk = folder.path().join("junk.pem");
    std::fs::write(&junk, "junk").expect("written");
    for path in [junk, folder.path().join("missing.pem")] {
        let options = Options { ca_file: Some(path.clone()), ..Options::default() };
        let error = Client::new("https://localhost", options).expect_err("refused").to_string();
        assert!(error.contains(&path.display().to_string()), "{error}");
    }
}
