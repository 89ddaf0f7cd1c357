//! Ends the server of an owner that died without dropping it.
//!
//! The watcher is a small shell process that reads a pipe whose only writing end the owner holds. The
//! owner writes the process number of each server it starts. When the pipe closes, because the owner is
//! done or is dead however it died, the watcher ends the last server, if that is still running, and
//! removes the folder. It holds no handle of the owner but that pipe, ignores the signals that a terminal
//! or a test runner sends around, and ends within seconds of its owner.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::error::Error;

/// `$1` is the cluster's folder. A process is only signalled while its command line names that folder, so
/// a number that was given to another process meanwhile does no harm. An immediate shutdown kills what
/// does not obey after five seconds by itself; the wait here is longer.
const SCRIPT: &str = r#"
trap '' HUP INT TERM QUIT PIPE
folder=$1
pid=
while IFS= read -r line; do pid=$line; done
running() {
    test -n "$pid" || return 1
    if test -d /proc/self; then args=$(tr '\0' ' ' <"/proc/$pid/cmdline"); else args=$(ps -o args= -p "$pid"); fi
    case $args in *"$folder/"*) return 0 ;; *) return 1 ;; esac
}
end() {
    running || return 0
    kill -s QUIT "$pid"
    tries=0
    while running && test "$tries" -lt 100; do sleep 0.1; tries=$((tries + 1)); done
    running && kill -s KILL "$pid"
}
end
tries=0
while test -d "$folder" && test "$tries" -lt 50; do
    test -f "$folder/data/postmaster.pid" && read -r pid <"$folder/data/postmaster.pid" && end
    rm -rf "$folder"
    test -d "$folder" && sleep 0.2
    tries=$((tries + 1))
done
"#;

/// The owner's side of the watcher.
#[derive(Debug)]
pub(crate) struct Watcher {
    child: Child,
    /// Only taken out by drop.
    pipe: Option<ChildStdin>,
}

impl Watcher {
    /// Starts watching over a cluster's folder.
    pub(crate) fn start(folder: &Path) -> Result<Self, Error> {
        let mut command = Command::new("/bin/sh");
        // Not as the account: that may lack the right to remove the folder from its parent.
        command.current_dir("/").process_group(0);
        command.args(["-c", SCRIPT, "windlass-testpg-watcher"]).arg(folder);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(Error::run("/bin/sh"))?;
        let pipe = child.stdin.take();
        Ok(Self { child, pipe })
    }

    /// Says to the watcher which process to end if the owner dies from now on.
    pub(crate) fn watch(&mut self, pid: u32) {
        self.write_line(&pid.to_string());
    }

    /// Says to the watcher that there is no process to end now.
    pub(crate) fn forget(&mut self) {
        self.write_line("");
    }

    /// A watcher that is gone cannot be written to, and the owner's own drop does not depend on it.
    fn write_line(&mut self, line: &str) {
        if let Some(pipe) = &mut self.pipe {
            let _ = pipe.write_all(format!("{line}\n").as_bytes());
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        drop(self.pipe.take());
        let _ = self.child.wait();
    }
}
