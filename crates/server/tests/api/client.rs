//! A client that sends exactly the given bytes, one at a time if asked.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

/// A response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Response {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("no JSON ({error}): {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// The value, if the status is as expected.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        if self.body.is_empty() { Value::Null } else { self.json() }
    }

    /// Checks that it is an error of this kind, with a message.
    #[track_caller]
    pub(crate) fn refused(self, status: u16, code: &str) -> Value {
        let body = self.expect(status);
        assert_eq!(body["code"], code, "{body}");
        assert!(body["message"].as_str().is_some_and(|text| !text.is_empty()), "{body}");
        assert!(body["hint"].is_string(), "{body}");
        body
    }
}

/// A request that is being described.
#[derive(Clone)]
pub(crate) struct Request {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Option<String>,
}

impl Request {
    pub(crate) fn new(method: &str, path: &str) -> Request {
        Request { method: method.into(), path: path.into(), headers: Vec::new(), body: None }
    }

    pub(crate) fn get(path: &str) -> Request {
        Request::new("GET", path)
    }

    pub(crate) fn post(path: &str, body: &Value) -> Request {
        Request::new("POST", path).json(body)
    }

    pub(crate) fn json(self, body: &Value) -> Request {
        let body = body.to_string();
        Request { body: Some(body), ..self }.header("content-type", "application/json")
    }

    /// A form that a page of the server posts.
    #[allow(dead_code, reason = "only tests of pages use it")]
    pub(crate) fn form(path: &str, body: &str) -> Request {
        let request = Request { body: Some(body.to_owned()), ..Request::new("POST", path) };
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        request.header("accept", "text/html")
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Request {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub(crate) fn token(self, token: &str) -> Request {
        self.header("authorization", &format!("Bearer {token}"))
    }

    /// The bytes of the request. The connection is closed after it, unless a header says otherwise.
    pub(crate) fn to_text(&self, address: SocketAddr) -> String {
        let has = |name: &str| self.headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        if !has("host") {
            text += &format!("host: {address}\r\n");
        }
        if !has("connection") {
            text += "connection: close\r\n";
        }
        if let Some(body) = &self.body {
            text += &format!("content-length: {}\r\n", body.len());
        }
        for (name, value) in &self.headers {
            text += &format!("{name}: {value}\r\n");
        }
        text + "\r\n" + self.body.as_deref().unwrap_or_default()
    }

    /// Sends it, and reads the response.
    pub(crate) async fn send(&self, address: SocketAddr) -> Response {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        stream.write_all(self.to_text(address).as_bytes()).await.expect("written");
        read_response(&mut BufReader::new(stream)).await
    }
}

/// Sends bytes, and reads the response.
pub(crate) async fn send_raw(address: SocketAddr, bytes: &[u8]) -> Response {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(bytes).await.expect("written");
    read_response(&mut BufReader::new(stream)).await
}

/// Reads the status and the headers.
pub(crate) async fn read_head<S: AsyncBufReadExt + Unpin>(stream: &mut S) -> Response {
    let mut line = String::new();
    stream.read_line(&mut line).await.expect("a status");
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.unwrap_or_else(|| panic!("no status: {line:?}"));
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.expect("a header");
        match line.trim_end().split_once(':') {
            Some((name, value)) => headers.push((name.to_owned(), value.trim_start().to_owned())),
            None => return Response { status, headers, body: String::new() },
        }
    }
}

/// Reads a whole response.
pub(crate) async fn read_response<S: AsyncBufReadExt + Unpin>(stream: &mut S) -> Response {
    let mut response = read_head(stream).await;
    let length = response.header("content-length").and_then(|length| length.parse::<usize>().ok());
    let mut body = Vec::new();
    match length {
        Some(length) => {
            body.resize(length, 0);
            stream.read_exact(&mut body).await.expect("a body");
        }
        None if response.header("transfer-encoding").is_some() => {
            while let Some(chunk) = read_chunk(stream).await {
                body.extend(chunk);
            }
        }
        None => {}
    }
    response.body = String::from_utf8(body).expect("UTF-8");
    response
}

/// Reads a chunk of a body; `None` at its end.
pub(crate) async fn read_chunk<S: AsyncBufReadExt + Unpin>(stream: &mut S) -> Option<Vec<u8>> {
    let mut line = String::new();
    stream.read_line(&mut line).await.expect("a length");
    let length = usize::from_str_radix(line.trim_end(), 16).expect("a length");
    let mut chunk = vec![0; length + 2];
    stream.read_exact(&mut chunk).await.expect("a chunk");
    chunk.truncate(length);
    (length > 0).then_some(chunk)
}
