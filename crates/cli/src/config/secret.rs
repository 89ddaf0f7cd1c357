//! Files with a secret: a token, the address of a store, which may have a password, or the key of a certificate. One that others may
//! read is refused.

use std::{
    fs::{File, Metadata},
    io::Read,
    os::unix::fs::MetadataExt,
    path::Path,
};

use anyhow::{Context, bail};

/// The most bytes of a file that has a secret. Anything longer is another file.
pub(crate) const MAX_BYTES: u64 = 64 << 10;

/// Reads a secret; `what` says for people which file it is.
pub(crate) fn read(what: &str, path: &Path) -> anyhow::Result<String> {
    let file = open(what, path)?;
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text).with_context(|| cannot_read(what, path))?;
    Ok(text)
}

/// Opens a file that nobody else may read.
pub(crate) fn open(what: &str, path: &Path) -> anyhow::Result<File> {
    let file = File::open(path).with_context(|| cannot_read(what, path))?;
    // Of the file that is open, so that it cannot be exchanged in between.
    let found = file.metadata().with_context(|| cannot_read(what, path))?;
    if is_open_to_others(&found, rustix::process::geteuid().as_raw()) {
        bail!(
            "{what} {0} may be read by others (its mode is {1:04o}); make it yours alone: `chmod 600 {0}`",
            path.display(),
            found.mode() & 0o777
        );
    }
    Ok(file)
}

/// Whether others than the user may read a file. A file of root may be read by its group, through which services get such files.
fn is_open_to_others(file: &Metadata, user: u32) -> bool {
    let others = if file.uid() == 0 && user != 0 { 0o037 } else { 0o077 };
    file.mode() & others != 0
}

fn cannot_read(what: &str, path: &Path) -> String {
    format!("{what} {} cannot be read", path.display())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let path = std::env::temp_dir().join(format!("windlass-secret-{}", std::process::id()));
        std::fs::write(&path, "secret\n").expect("written");
        let with_mode = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("changed");
            read("the file of the test", &path)
        };
        for mode in [0o600, 0o400] {
            assert_eq!(with_mode(mode).expect("read"), "secret\n");
        }
        for mode in [0o644, 0o640, 0o604, 0o620, 0o601] {
            let error = with_mode(mode).expect_err("refused").to_string();
            assert!(error.contains(&format!("chmod 600 {}", path.display())), "{error}");
            assert!(error.starts_with("the file of the test ") && !error.contains("secret\n"), "{error}");
        }
        with_mode(0o640).expect_err("refused");
        let found = path.metadata().expect("it exists");
        let is_roots = found.uid() == 0;
        assert_eq!(is_open_to_others(&found, found.uid() + 1), !is_roots, "a group may read what is root's");
        std::fs::remove_file(&path).expect("removed");
        let gone = read("the file of the test", &path).expect_err("gone").to_string();
        assert!(gone.contains("cannot be read"), "{gone}");
    }
}
