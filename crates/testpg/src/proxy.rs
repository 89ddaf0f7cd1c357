//! A TCP proxy in front of a server, for what a network does: it can be pointed at another server, stop forwarding
//! without closing anything, and cut its connections.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread,
};

/// Forwards connections to a loopback port. Dropping it cuts them and ends its threads.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Where new connections go.
    target: u16,
    /// Whether nothing is forwarded at present.
    frozen: bool,
    closed: bool,
    /// Both ends of every connection.
    streams: Vec<TcpStream>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Waits while nothing is forwarded.
    fn pass(&self) {
        let state = self.changed.wait_while(self.state(), |state| state.frozen && !state.closed);
        drop(state);
    }
}

impl Proxy {
    /// Begins to forward connections to `target`, a port of the loopback address.
    ///
    /// # Errors
    ///
    /// When no port can be listened on.
    pub fn to(target: u16) -> io::Result<Proxy> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared::default());
        shared.state().target = target;
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming() {
                if accepting.state().closed {
                    break;
                }
                if let Ok(client) = client {
                    // A client whose server is not there finds its connection closed.
                    let _ = forward(&accepting, client);
                }
            }
        });
        Ok(Proxy { port, shared })
    }

    /// The port to connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Forwards new connections to another port; those that are open stay where they are.
    pub fn retarget(&self, target: u16) {
        self.shared.state().target = target;
    }

    /// Stops forwarding, in both directions and for new connections too. Nothing is closed: the peer has vanished.
    pub fn freeze(&self) {
        self.shared.state().frozen = true;
    }

    /// Forwards again, also what was sent meanwhile.
    pub fn thaw(&self) {
        self.shared.state().frozen = false;
        self.shared.changed.notify_all();
    }

    /// Closes all connections that are open.
    pub fn cut(&self) {
        for stream in self.shared.state().streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.state().closed = true;
        self.shared.changed.notify_all();
        self.cut();
        // Ends the thread that accepts.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

fn forward(shared: &Arc<Shared>, client: TcpStream) -> io::Result<()> {
    let target = shared.state().target;
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, target))?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
        shared.state().streams.push(stream.try_clone()?);
    }
    for (from, to) in [(client.try_clone()?, server.try_clone()?), (server, client)] {
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            let _ = copy(&shared, &from, &to);
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
        });
    }
    Ok(())
}

fn copy(shared: &Shared, mut from: &TcpStream, mut to: &TcpStream) -> io::Result<()> {
    let mut buffer = [0; 16 * 1024];
    loop {
        let read = from.read(&mut buffer)?;
        shared.pass();
        if read == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..read])?;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A server that answers every byte with itself, prefixed by its name.
    fn echo(name: u8) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound");
        let port = listener.local_addr().expect("an address").port();
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                thread::spawn(move || {
                    let mut byte = [0];
                    while stream.read_exact(&mut byte).is_ok() && stream.write_all(&[name, byte[0]]).is_ok() {
                    }
                });
            }
        });
        port
    }

    fn ask(mut stream: &TcpStream, byte: u8) -> io::Result<[u8; 2]> {
        stream.write_all(&[byte])?;
        let mut answer = [0; 2];
        stream.read_exact(&mut answer)?;
        Ok(answer)
    }

    #[test]
    fn it_forwards_freezes_and_cuts() {
        let proxy = Proxy::to(echo(b'a')).expect("bound");
        let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port())).expect("connected");
        let first = connect();
        assert_eq!(&ask(&first, b'1').expect("an answer"), b"a1");
        proxy.retarget(echo(b'b'));
        assert_eq!(&ask(&first, b'2').expect("an answer"), b"a2", "what is open stays where it is");
        assert_eq!(&ask(&connect(), b'3').expect("an answer"), b"b3");
        proxy.freeze();
        first.set_read_timeout(Some(Duration::from_millis(50))).expect("set");
        ask(&first, b'4').expect_err("nothing comes through");
        proxy.thaw();
        first.set_read_timeout(None).expect("set");
        let mut late = [0; 2];
        (&first).read_exact(&mut late).expect("an answer");
        assert_eq!(&late, b"a4", "nothing is lost");
        proxy.cut();
        ask(&first, b'5').expect_err("closed");
        assert_eq!(&ask(&connect(), b'6').expect("an answer"), b"b6");
    }
}
