//! The settings file. An unknown key is an error, so that a misspelt setting is not silently ignored.

use std::{path::Path, time::Duration};

use anyhow::{Context, anyhow, bail};
use toml::{Table, Value};
use windlass::model::Limits;

use super::{PoolSettings, ServerSettings, Settings, alerts, nearest};
use crate::durations;

const KEYS: [&str; 18] = [
    "store",
    "log",
    "name",
    "lease",
    "renew_every",
    "drain",
    "max_crashes",
    "metrics",
    "queues",
    "retention",
    "limits",
    "server",
    "store_file",
    "token_file",
    "ca_file",
    "allow_http",
    "alerts",
    "webhooks",
];
const SERVER_KEYS: [&str; 10] = [
    "listen",
    "hosts",
    "trusted_proxies",
    "tls_cert",
    "tls_key",
    "login",
    "rate",
    "public_url",
    "client_connections",
    "client_streams",
];
const RETENTION_KEYS: [&str; 4] = ["done", "failed", "cancelled", "throughput"];
const POOL_KEYS: [&str; 5] = ["slots", "prefetch", "min_demand", "poll", "max_poll"];

pub(super) fn read(path: &Path) -> anyhow::Result<Settings> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("the settings file {} cannot be read", path.display()))?;
    parse(&text).with_context(|| format!("the settings file {}", path.display()))
}

pub(super) fn parse(text: &str) -> anyhow::Result<Settings> {
    let table: Table =
        text.parse().map_err(|error: toml::de::Error| anyhow!("{}", error.to_string().trim_end()))?;
    let mut settings = Settings::default();
    for (key, value) in &table {
        match key.as_str() {
            "store" => settings.store = Some(string(key, value)?),
            "store_file" => settings.store_file = Some(string(key, value)?.into()),
            "log" => settings.log = Some(string(key, value)?),
            "name" => settings.name = Some(string(key, value)?),
            "lease" => settings.lease = Some(duration(key, value)?),
            "renew_every" => settings.renew_every = Some(duration(key, value)?),
            "drain" => settings.drain = Some(duration(key, value)?),
            "max_crashes" => settings.max_crashes = Some(count(key, value)?.try_into().unwrap_or(u16::MAX)),
            "metrics" => settings.metrics = Some(string(key, value)?),
            "queues" => queues(&mut settings, value)?,
            "retention" => retention(&mut settings, value)?,
            "limits" => limits(&mut settings, value)?,
            // The address of a server to talk to, or the settings of the one that this machine is.
            "server" => match value {
                Value::String(url) => settings.remote.url = Some(url.clone()),
                table => server(&mut settings.server, table)?,
            },
            "token_file" => settings.remote.token_file = Some(string(key, value)?.into()),
            "ca_file" => settings.remote.ca_file = Some(string(key, value)?.into()),
            "allow_http" => settings.remote.allow_http = Some(boolean(key, value)?),
            "alerts" => alerts::rules(&mut settings.alerts, value)?,
            "webhooks" => alerts::webhooks(&mut settings.alerts, value)?,
            _ => return Err(unknown(key, &KEYS)),
        }
    }
    alerts::check_webhooks(&settings.alerts)?;
    Ok(settings)
}

fn queues(settings: &mut Settings, value: &Value) -> anyhow::Result<()> {
    let Value::Table(queues) = value else {
        bail!("`queues` is a table of queues; write it as [queues.default] with slots = 64 below");
    };
    for (name, value) in queues {
        windlass::model::limits::check_name("queue", name)?;
        let Value::Table(pool) = value else {
            bail!("`queues.{name}` is a table; write it as [queues.{name}] with slots = 64 below");
        };
        settings.queues.insert(name.clone(), pool_settings(name, pool)?);
    }
    Ok(())
}

fn pool_settings(queue: &str, pool: &Table) -> anyhow::Result<PoolSettings> {
    let mut settings = PoolSettings::default();
    for (key, value) in pool {
        let path = format!("queues.{queue}.{key}");
        match key.as_str() {
            "slots" => settings.slots = Some(count(&path, value)?),
            "prefetch" => settings.prefetch = Some(number(&path, value)?),
            "min_demand" => settings.min_demand = Some(count(&path, value)?),
            "poll" => settings.poll = Some(duration(&path, value)?),
            "max_poll" => settings.max_poll = Some(duration(&path, value)?),
            _ => return Err(unknown(&path, &POOL_KEYS)),
        }
    }
    Ok(settings)
}

fn retention(settings: &mut Settings, value: &Value) -> anyhow::Result<()> {
    let Value::Table(table) = value else {
        bail!("`retention` is a table; write it as [retention] with done = \"30d\" below");
    };
    for (key, value) in table {
        let path = format!("retention.{key}");
        let kept = match key.as_str() {
            "done" => &mut settings.retention.done,
            "failed" => &mut settings.retention.failed,
            "cancelled" => &mut settings.retention.cancelled,
            "throughput" => &mut settings.retention.throughput,
            _ => return Err(unknown(&path, &RETENTION_KEYS)),
        };
        let Value::String(text) = value else {
            bail!(
                "`{path}` is {}, and must be a duration in quotes, like \"30d\", or \"forever\"",
                display(value)
            )
        };
        *kept = Some(text.parse().map_err(|why| anyhow!("`{path}`: {why}"))?);
    }
    Ok(())
}

fn server(settings: &mut ServerSettings, value: &Value) -> anyhow::Result<()> {
    let Value::Table(table) = value else {
        bail!(
            "`server` is neither the address of a server, like \"https://HOST:7077\", nor the settings of this one; write those as \
             [server] with listen = \"127.0.0.1:7077\" below"
        );
    };
    for (key, value) in table {
        let path = format!("server.{key}");
        match key.as_str() {
            "listen" => settings.listen = Some(string(&path, value)?),
            "hosts" => settings.hosts = strings(&path, value)?,
            "trusted_proxies" => settings.trusted_proxies = strings(&path, value)?,
            "tls_cert" => settings.tls_cert = Some(string(&path, value)?),
            "tls_key" => settings.tls_key = Some(string(&path, value)?),
            "login" => settings.login = Some(boolean(&path, value)?),
            "public_url" => settings.public_url = Some(string(&path, value)?),
            "rate" => settings.rate = Some(amount(&path, value)?),
            "client_connections" => settings.client_connections = Some(amount(&path, value)?),
            "client_streams" => settings.client_streams = Some(amount(&path, value)?),
            _ => return Err(unknown(&path, &SERVER_KEYS)),
        }
    }
    Ok(())
}

fn amount(path: &str, value: &Value) -> anyhow::Result<u32> {
    Ok(number(path, value)?.try_into().unwrap_or(u32::MAX))
}

fn strings(path: &str, value: &Value) -> anyhow::Result<Vec<String>> {
    let Value::Array(list) = value else {
        bail!("`{path}` is {}, and must be a list of texts, like [\"a\", \"b\"]", display(value));
    };
    list.iter().map(|value| string(path, value)).collect()
}

fn limits(settings: &mut Settings, value: &Value) -> anyhow::Result<()> {
    let Value::Table(table) = value else {
        bail!("`limits` is a table; write it as [limits] with payload = \"4MiB\" below");
    };
    for (key, value) in table {
        let path = format!("limits.{key}");
        if !Limits::NAMES.contains(&key.as_str()) {
            return Err(unknown(&path, Limits::NAMES));
        }
        let limit = match value {
            Value::String(text) => Limits::parse(key, text).map_err(|why| anyhow!("`{path}`: {why}"))?,
            value => count(&path, value)?,
        };
        settings.limits.insert(key.clone(), limit);
    }
    Ok(())
}

pub(super) fn unknown(path: &str, known: &[&str]) -> anyhow::Error {
    let key = path.rsplit('.').next().unwrap_or(path);
    let all = known.join(", ");
    match nearest::of(key, known.iter().copied()) {
        Some(near) => anyhow!("`{path}` is not a setting; did you mean `{near}`? The settings are {all}"),
        None => anyhow!("`{path}` is not a setting; the settings are {all}"),
    }
}

/// A value as it is written in the file.
pub(super) fn display(value: &Value) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| value.type_str().to_owned())
}

pub(super) fn string(key: &str, value: &Value) -> anyhow::Result<String> {
    match value {
        Value::String(text) if !text.is_empty() => Ok(text.clone()),
        _ => bail!("`{key}` is {}, and must be text in quotes", display(value)),
    }
}

pub(super) fn boolean(key: &str, value: &Value) -> anyhow::Result<bool> {
    let boolean = value.as_bool();
    boolean.with_context(|| format!("`{key}` is {}, and must be true or false", display(value)))
}

pub(super) fn duration(key: &str, value: &Value) -> anyhow::Result<Duration> {
    match value {
        Value::String(text) => durations::parse(text).map_err(|why| anyhow!("`{key}`: {why}")),
        _ => {
            bail!("`{key}` is {}, and must be a duration in quotes, like \"15s\" or \"2m\"", display(value))
        }
    }
}

pub(super) fn number(key: &str, value: &Value) -> anyhow::Result<usize> {
    let number = value.as_integer().and_then(|number| usize::try_from(number).ok());
    number.with_context(|| format!("`{key}` is {}, and must be a whole number", display(value)))
}

fn count(key: &str, value: &Value) -> anyhow::Result<usize> {
    let count = number(key, value)?;
    if count == 0 { bail!("`{key}` is 0, and must be at least 1") } else { Ok(count) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The TOML blocks of a page.
    fn blocks(page: &str) -> Vec<String> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let blocks = text.split("```toml\n").skip(1);
        blocks.map(|rest| rest.split("```").next().expect("a block").to_owned()).collect()
    }

    #[test]
    fn the_settings_in_the_documents_are_settings_and_no_key_is_missing() {
        let pages = [blocks("configuration.md"), blocks("server.md")];
        for block in pages.iter().flatten() {
            parse(block).unwrap_or_else(|error| panic!("{error:#} in\n{block}"));
            // A setting that is commented out, alone.
            for line in block.lines().filter_map(|line| line.strip_prefix("# ")) {
                parse(line).unwrap_or_else(|error| panic!("{error:#} in\n{line}"));
            }
        }
        let all = pages.concat().concat();
        for key in
            KEYS.iter().chain(&SERVER_KEYS).chain(&RETENTION_KEYS).chain(&POOL_KEYS).chain(Limits::NAMES)
        {
            // These are tables with names of their own, which docs/alerts.md shows.
            if ["alerts", "webhooks"].contains(key) {
                continue;
            }
            let is_set = |line: &str| {
                let line = line.trim_start_matches("# ");
                line.starts_with(&format!("{key} = ")) || line.starts_with(&format!("[{key}"))
            };
            assert!(all.lines().any(is_set), "docs/configuration.md does not show `{key}`");
        }
    }

    #[test]
    fn every_key_is_known_or_an_error_that_names_the_nearest() {
        let error = |text| format!("{:#}", parse(text).expect_err(text));
        assert!(error("leas = '15s'").contains("did you mean `lease`?"));
        assert!(error("colour = 1").contains("the settings are store, log"));
        assert!(
            error("[queues.mail]\nslot = 3")
                .contains("`queues.mail.slot` is not a setting; did you mean `slots`?")
        );
        assert!(error("lease = 15").contains("\"15s\""));
        assert!(error("lease = 'soon'").contains("`lease`: \"soon\" is not a duration"));
        assert!(error("[queues.mail]\nslots = 0").contains("at least 1"));
        assert!(error("[queues.'windlass.x']\nslots = 1").contains("reserved"));
        assert!(error("queues = 3").contains("[queues.default]"));
        assert!(error("store = ").contains("line 1"));
        assert!(error("[retention]\nfaild = '1d'").contains("did you mean `failed`?"));
        assert!(error("[retention]\nfailed = 30").contains("\"30d\", or \"forever\""));
        assert!(error("retention = '30d'").contains("[retention]"));
        assert!(error("[limits]\npayloads = 9").contains("did you mean `payload`?"));
        assert!(error("[limits]\npayload = 0").contains("at least 1"));
        assert!(error("[limits]\npayload = '4GB'").contains("`limits.payload`: the limit payload of"));
        assert!(error("limits = 3").contains("[limits]"));
        assert!(
            error("server = 3").contains("[server]") && error("allow_http = 1").contains("true or false")
        );
    }

    proptest! {
        #[test]
        fn no_file_breaks_the_parser(
            lines in prop::collection::vec(
                (prop::sample::select(KEYS.iter().chain(&SERVER_KEYS).chain(&POOL_KEYS).chain(&RETENTION_KEYS).copied().collect::<Vec<_>>()),
                 "(-?[0-9]{1,20}|'[0-9a-z]{0,6}'|true|\\[('a',?){0,2}\\]|\\{ a = 1 \\}|1e[0-9]{1,3}|nan|2026-11-15|\\PC{0,10})",
                 prop::sample::select(vec!["", "[queues.mail]\n", "[server]\n", "[retention]\n", "[limits]\n", "[[queues]]\n"])),
                0..5),
        ) {
            let text: String = lines.iter().map(|(key, value, table)| format!("{table}{key} = {value}\n")).collect();
            if let Err(error) = parse(&text) {
                prop_assert!(!error.to_string().is_empty());
            }
        }
    }
}
