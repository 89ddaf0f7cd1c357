//! The processes of one server, found without any privilege.
//!
//! A server's processes are known by their command lines, which anyone may read: the postmaster (and a
//! child it has just forked) has the data folder as an argument, and every other process has the cluster's
//! name, which is unique, in its title. So processes are found even after the postmaster is gone, and a
//! process that merely got an old process number is never taken for one.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// What tells the processes of one server from all others.
#[derive(Debug, Clone)]
pub(crate) struct Mark {
    /// The data folder, as the postmaster has it among its arguments.
    argument: String,
    /// How the title of every child starts.
    title: String,
}

impl Mark {
    pub(crate) fn new(data: &Path, cluster_name: &str) -> Self {
        Self { argument: format!(" -D {} ", data.display()), title: format!("postgres: {cluster_name}: ") }
    }

    /// All living processes of the server; zombies are not living.
    pub(crate) fn living(&self) -> Vec<u32> {
        let all = from_proc().unwrap_or_else(from_ps);
        all.into_iter().filter(|(_, line)| self.fits(line)).map(|(pid, _)| pid).collect()
    }

    /// Whether a command line is that of a process of this server.
    fn fits(&self, line: &str) -> bool {
        if line.starts_with(&self.title) {
            return true;
        }
        let line = line.replace('\0', " ");
        line.split_once(&self.argument).is_some_and(|(program, _)| program.ends_with("/postgres"))
    }
}

/// Sends a signal, named without `SIG`, to processes; those that are gone already do not matter.
pub(crate) fn signal(name: &str, pids: &[u32]) {
    if pids.is_empty() {
        return;
    }
    // The shell's own `kill`: small systems have no program of that name.
    let mut command = Command::new("/bin/sh");
    command.args(["-c", r#"for pid; do kill -s "$0" "$pid"; done"#, name]);
    command.args(pids.iter().map(u32::to_string));
    let _ = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
}

/// All processes with their command lines, from /proc; a zombie's is empty.
fn from_proc() -> Option<Vec<(u32, String)>> {
    fs::metadata("/proc/self/cmdline").ok()?;
    let entries = fs::read_dir("/proc").ok()?;
    let read = entries.flatten().filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        Some((pid, String::from_utf8_lossy(&line).into_owned()))
    });
    Some(read.collect())
}

/// The same from `ps`, where there is no /proc.
fn from_ps() -> Vec<(u32, String)> {
    let mut command = Command::new("ps");
    command.args(["-A", "-o", "pid=", "-o", "stat=", "-o", "command="]).stdin(Stdio::null());
    let Ok(output) = command.output() else { return Vec::new() };
    String::from_utf8_lossy(&output.stdout).lines().filter_map(ps_line).collect()
}

/// One line of `ps`: process number, state, command line.
fn ps_line(line: &str) -> Option<(u32, String)> {
    let (pid, rest) = line.trim_start().split_once(' ')?;
    let (state, command) = rest.trim_start().split_once(' ')?;
    if state.starts_with('Z') {
        return None;
    }
    Some((pid.parse().ok()?, command.trim_start().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_servers_own_processes_fit() {
        let mark = Mark::new(Path::new("/tmp/wl-1/data"), "wl-1");
        assert!(mark.fits("/usr/lib/postgresql/15/bin/postgres\0-D\0/tmp/wl-1/data\0-p\0port\0"));
        assert!(mark.fits("postgres: wl-1: checkpointer "));
        assert!(!mark.fits("postgres: wl-12: checkpointer "));
        assert!(!mark.fits("/usr/lib/postgresql/15/bin/postgres\0-D\0/tmp/wl-1/data2\0"));
        assert!(!mark.fits("/usr/bin/tail\0-D\0/tmp/wl-1/data\0"));
        assert!(!mark.fits(""));
    }

    #[test]
    fn lines_of_ps_are_understood_and_zombies_left_out() {
        let line = ps_line("  42 Ss   postgres: wl-1: walwriter ").unwrap();
        assert_eq!(line, (42, "postgres: wl-1: walwriter ".to_owned()));
        assert_eq!(ps_line("  42 Z    (postgres)"), None);
    }

    #[test]
    fn a_process_can_be_signalled() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        signal("KILL", &[child.id()]);
        assert!(!child.wait().unwrap().success());
    }
}
