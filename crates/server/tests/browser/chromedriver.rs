//! The driver of the browsers: one process for all tests, on a free port.
//!
//! A small shell process starts it and reads a pipe whose only writing end this process holds. When the pipe closes, because the tests have ended or
//! were killed, the shell ends the driver with all its browsers and removes their folder. So none outlives the tests, however they end.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::OnceLock,
};

/// `$1` is the folder of all profiles, which browsers name in their command lines. They go on when their driver is gone.
const SCRIPT: &str = r#"
folder=$1
TMPDIR=$folder chromedriver --port=0 --allowed-ips=127.0.0.1 2>/dev/null </dev/null &
driver=$!
while IFS= read -r line; do :; done
kill -s KILL "$driver"
wait "$driver"
tries=0
while pids=$(pgrep -f "$folder/") && test "$tries" -lt 50; do
    kill -s KILL $pids
    tries=$((tries + 1))
    sleep 0.1
done
rm -rf "$folder"
"#;

/// A driver that runs.
pub(crate) struct Driver {
    pub(crate) address: SocketAddr,
    /// Where the profiles of its browsers are.
    pub(crate) folder: PathBuf,
    /// Holds the writing end of the pipe.
    _shell: Child,
}

/// The driver of this process.
pub(crate) fn driver() -> &'static Driver {
    static DRIVER: OnceLock<Driver> = OnceLock::new();
    DRIVER.get_or_init(start)
}

fn start() -> Driver {
    let folder = tempfile::Builder::new().prefix("windlass-browser-").tempdir().expect("a folder").keep();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", SCRIPT, "windlass-browser"]).arg(&folder).process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut shell = command.spawn().expect("a shell");
    let out = shell.stdout.take().expect("a pipe");
    let port = BufReader::new(out).lines().map_while(Result::ok).find_map(|line| {
        // ChromeDriver was started successfully on port 40001.
        let (_, port) = line.split_once("started successfully on port ")?;
        port.trim_end_matches('.').parse::<u16>().ok()
    });
    let port = port.expect("chromedriver is needed for these tests; `./test` installs it");
    Driver { address: SocketAddr::from(([127, 0, 0, 1], port)), folder, _shell: shell }
}
