//! The scripts by which shells complete the commands.

mod common;

use std::{path::Path, process::Command};

use common::{Sandbox, assert_contains};

/// Whether a program is in the path.
fn exists(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

#[test]
fn each_shell_accepts_its_script_and_it_has_every_command() {
    let sandbox = Sandbox::new();
    for (shell, check) in [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")] {
        let script = sandbox.ok(&["completions", shell]);
        for word in
            ["schedules", "ui", "branches", "bench", "demo", "completions", "token-file", "dry-run", "exec"]
        {
            assert!(script.contains(word), "{shell} lacks {word}");
        }
        if exists(shell) {
            let file = sandbox.path(&format!("windlass.{shell}"));
            std::fs::write(&file, &script).expect("written");
            let checked = Command::new(shell).arg(check).arg(&file).output().expect("it runs");
            assert!(checked.status.success(), "{shell}: {checked:?}");
        }
    }
    assert_contains(&sandbox.fails(&["completions", "tcsh"]), &["bash, zsh, fish"]);
}

#[test]
fn bash_completes_commands_flags_and_values() {
    let sandbox = Sandbox::new();
    if !exists("bash") {
        return;
    }
    sandbox.write("windlass.bash", &sandbox.ok(&["completions", "bash"]));
    let complete = |words: &str| {
        let script = format!(
            "source windlass.bash; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _windlass windlass \"${{COMP_WORDS[COMP_CWORD]}}\" ''; echo ${{COMPREPLY[@]}}"
        );
        let output =
            Command::new("bash").args(["--norc", "-c", &script]).current_dir(sandbox.dir.path()).output();
        String::from_utf8(output.expect("it runs").stdout).expect("text")
    };
    assert_eq!(complete("windlass sched").trim(), "schedules");
    assert_eq!(complete("windlass dem").trim(), "demo", "hidden commands are not completed");
    assert_eq!(complete("windlass schedules pa").trim(), "pause");
    assert_eq!(complete("windlass jobs --sta").trim(), "--state --stage");
}

#[test]
fn completions_need_no_settings() {
    let sandbox = Sandbox::new();
    sandbox.write("windlass.toml", "this is no TOML");
    assert!(sandbox.ok(&["completions", "fish"]).contains("complete -c windlass"));
    assert!(!Path::new(&sandbox.path("windlass.db")).exists());
}
