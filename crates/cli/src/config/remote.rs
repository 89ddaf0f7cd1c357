//! Settings of the server that commands talk to in place of a store.

use std::{fmt, fs::File, io::Read, os::unix::fs::PermissionsExt, path::PathBuf};

use anyhow::{Context, anyhow, bail};

/// The settings of one layer.
#[derive(Clone, Default, PartialEq)]
pub(crate) struct RemoteSettings {
    /// The address of the server.
    pub(crate) url: Option<String>,
    /// The token itself, which only the environment may have.
    pub(crate) token: Option<String>,
    /// The file with the token.
    pub(crate) token_file: Option<PathBuf>,
    /// The file with the authorities that sign the server's certificate.
    pub(crate) ca_file: Option<PathBuf>,
    /// Whether tokens may be sent unencrypted to other machines.
    pub(crate) allow_http: Option<bool>,
}

impl RemoteSettings {
    /// These settings over those of the layer below, without the address.
    pub(super) fn over(self, below: RemoteSettings) -> RemoteSettings {
        let (token, token_file) = match (self.token, self.token_file) {
            (None, None) => (below.token, below.token_file),
            own => own,
        };
        RemoteSettings {
            url: None,
            token,
            token_file,
            ca_file: self.ca_file.or(below.ca_file),
            allow_http: self.allow_http.or(below.allow_http),
        }
    }

    /// The token, from the environment or from its file.
    pub(crate) fn read_token(&self) -> anyhow::Result<Option<String>> {
        let text = match (&self.token, &self.token_file) {
            (Some(_), Some(path)) => {
                bail!("the token is given both by WINDLASS_TOKEN and by the file {}; use one", path.display())
            }
            (Some(token), None) => token.clone(),
            (None, Some(path)) => read_secret("token", path)?,
            (None, None) => return Ok(None),
        };
        let token = text.trim();
        if token.is_empty() || token.contains(char::is_whitespace) {
            bail!("the token is not one word; write the text into it that `windlass tokens create` printed");
        }
        Ok(Some(token.to_owned()))
    }

    /// Makes the server the store of an engine.
    #[cfg(feature = "remote")]
    pub(crate) fn apply(&self, builder: windlass::Builder) -> anyhow::Result<windlass::Builder> {
        let url = self.url.as_deref().unwrap_or_default();
        if !url.starts_with("https://") && !url.starts_with("http://") {
            bail!(
                "{url:?} is not the address of a server; write it as https://HOST:PORT, or name a store with --store"
            );
        }
        let mut builder = builder.url(url);
        if let Some(token) = self.read_token()? {
            builder = builder.token(token);
        }
        if let Some(path) = &self.ca_file {
            builder = builder.ca_file(path);
        }
        Ok(if self.allow_http == Some(true) { builder.allow_http() } else { builder })
    }
}

/// Reads a file that nobody else may read; `what` says what is in it.
pub(super) fn read_secret(what: &str, path: &std::path::Path) -> anyhow::Result<String> {
    let cannot = || format!("the {what} file {} cannot be read", path.display());
    let mut file = File::open(path).with_context(cannot)?;
    // Of the file that is open, so that it cannot be exchanged in between.
    let mode = file.metadata().with_context(cannot)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(anyhow!(
            "the {what} file {0} may be read by others (its mode is {mode:04o}); make it yours alone: `chmod 600 {0}`",
            path.display()
        ));
    }
    let mut text = String::new();
    file.read_to_string(&mut text).with_context(cannot)?;
    Ok(text)
}

impl fmt::Debug for RemoteSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = self.token.as_ref().map(|_| "…");
        let RemoteSettings { url, token_file, ca_file, allow_http, .. } = self;
        let mut f = f.debug_struct("RemoteSettings");
        f.field("url", url).field("token", &token).field("token_file", token_file);
        f.field("ca_file", ca_file).field("allow_http", allow_http).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_mode(path: &std::path::Path, mode: u32) -> RemoteSettings {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("changed");
        RemoteSettings { token_file: Some(path.to_owned()), ..RemoteSettings::default() }
    }

    #[test]
    fn a_token_file_that_others_may_read_is_refused() {
        let path = std::env::temp_dir().join(format!("windlass-token-{}", std::process::id()));
        std::fs::write(&path, "windlass_1_secret\n").expect("written");
        assert_eq!(with_mode(&path, 0o600).read_token().expect("read"), Some("windlass_1_secret".into()));
        assert_eq!(with_mode(&path, 0o400).read_token().expect("read"), Some("windlass_1_secret".into()));
        for mode in [0o644, 0o640, 0o604, 0o620, 0o601] {
            let error = with_mode(&path, mode).read_token().expect_err("refused").to_string();
            assert!(error.contains(&format!("chmod 600 {}", path.display())), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
        std::fs::write(&path, "two words\n").expect("written");
        assert!(with_mode(&path, 0o600).read_token().is_err());
        std::fs::remove_file(&path).expect("removed");
        let gone = RemoteSettings { token_file: Some(path), ..RemoteSettings::default() };
        assert!(gone.read_token().expect_err("gone").to_string().contains("cannot be read"));
    }

    #[test]
    fn a_token_of_a_higher_layer_replaces_that_of_a_lower_one() {
        let file = |name: &str| RemoteSettings { token_file: Some(name.into()), ..RemoteSettings::default() };
        let env = RemoteSettings { token: Some("secret".into()), ..RemoteSettings::default() };
        assert_eq!(env.clone().over(file("a")).token_file, None);
        assert_eq!(file("flag").over(env.clone()).token, None);
        assert!(!format!("{env:?}").contains("secret"));
        assert!(
            RemoteSettings { token_file: Some("a".into()), ..env }.read_token().is_err(),
            "one layer has both"
        );
    }
}
