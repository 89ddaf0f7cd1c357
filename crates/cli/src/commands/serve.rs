//! `windlass serve`: the HTTP API, and a worker.

use std::{net::SocketAddr, process::ExitCode};

use anyhow::{Context, anyhow, bail};
use windlass_server::{Server, Settings as HttpSettings, TlsFiles};

use crate::{
    args::Working,
    config::{AlertSettings, ServerSettings, Settings, secret},
    out,
    program::Program,
    stop::{self, StopSignals},
};

/// Serve the HTTP API, and run jobs like a worker
///
/// On a loopback address no login is needed. On any other address, and behind a proxy, every request needs one, and the server does
/// not start before there is a user or a token: `windlass users create NAME --role admin`, `windlass tokens create NAME --role admin`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The address to listen on [env: WINDLASS_LISTEN] [default: 127.0.0.1:7077]
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Run no jobs; workers on other hosts do. The server still fires timers and schedules, and returns the jobs of lost workers
    #[arg(long, conflicts_with = "queue")]
    no_work: bool,
    #[command(flatten)]
    pub(crate) working: Working,
    /// A name by which clients call this server, besides its address; may be repeated [env: WINDLASS_HOSTS]
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// The certificate for TLS, a PEM file [env: WINDLASS_TLS_CERT]
    #[arg(long, value_name = "PATH")]
    tls_cert: Option<String>,
    /// Its private key, a PEM file [env: WINDLASS_TLS_KEY]
    #[arg(long, value_name = "PATH")]
    tls_key: Option<String>,
    /// The address or network of a proxy whose X-Forwarded-For and X-Forwarded-Proto are believed; may be repeated
    /// [env: WINDLASS_TRUSTED_PROXIES]
    #[arg(long, value_name = "ADDRESS")]
    trusted_proxy: Vec<String>,
    /// Ask for a login on a loopback address too [env: WINDLASS_LOGIN]
    #[arg(long)]
    login: bool,
    /// The address by which people reach this server, for links in messages about alerts [env: WINDLASS_PUBLIC_URL]
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
    /// How many requests per second a client may send; 0 for any number [env: WINDLASS_RATE] [default: 1000]
    #[arg(long, value_name = "N")]
    rate: Option<u32>,
    /// How many connections a client may have at the same time; 0 for any number [env: WINDLASS_CLIENT_CONNECTIONS] [default: 1024]
    #[arg(long, value_name = "N")]
    client_connections: Option<u32>,
    /// How many streams and waiting requests a client may have at the same time; 0 for any number [env: WINDLASS_CLIENT_STREAMS]
    /// [default: 1000]
    #[arg(long, value_name = "N")]
    client_streams: Option<u32>,
}

pub(crate) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    program.need_store("serve")?;
    let flags = Settings {
        server: ServerSettings {
            listen: args.listen,
            hosts: args.host,
            trusted_proxies: args.trusted_proxy,
            tls_cert: args.tls_cert,
            tls_key: args.tls_key,
            login: args.login.then_some(true),
            rate: args.rate,
            public_url: args.public_url,
            client_connections: args.client_connections,
            client_streams: args.client_streams,
        },
        ..args.working.into_settings()?
    };
    let settings = flags.over(program.settings.clone());
    let http = http_settings(&settings.server, &settings.alerts).await?;
    let scheme = if http.tls.is_some() { "https" } else { "http" };
    // Before anything is claimed, so that no signal is lost.
    let mut stop = StopSignals::listen()?;
    allow_many_connections();
    let mut engine = settings.apply(program.builder()?)?;
    if !args.no_work {
        engine = settings.alerts.serve_webhooks(engine)?;
    }
    let engine = engine.open().await.with_context(|| program.open_error())?;
    let bound = Server::bind(engine.clone(), http).await;
    let server = bound.map_err(|error| anyhow!(program.with_own_name(&error.to_string())))?;
    match args.no_work {
        true => engine.start_maintenance().await?,
        false => engine.start().await?,
    }
    let work = if args.no_work { ", and runs no jobs" } else { "" };
    out::print(&format!("serves {} at {scheme}://{}{work}\n", program.display_url(), server.address()))?;
    server.run(stop.received()).await;
    tracing::info!(
        "stopping: waiting for running attempts, releasing the rest; a second signal exits at once"
    );
    tokio::select! {
        _ = engine.stop() => Ok(ExitCode::SUCCESS),
        () = stop.received() => {
            out::note("second signal: exiting at once; other workers run the jobs of this one again");
            // Waits for nothing: an attempt may block its thread.
            std::process::exit(stop::INTERRUPTED.into())
        }
    }
}

/// Raises the limit of open files, one of which every connection is: by default a process may have 1,024.
fn allow_many_connections() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    const WANTED: u64 = 16_384;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let allowed = maximum.map_or(WANTED, |maximum| maximum.min(WANTED));
    if current.is_some_and(|current| current < allowed)
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(allowed), maximum })
    {
        tracing::warn!(%error, "the limit of open files cannot be raised: there will be fewer connections");
    }
}

async fn http_settings(settings: &ServerSettings, alerts: &AlertSettings) -> anyhow::Result<HttpSettings> {
    let mut http = HttpSettings::default();
    if let Some(listen) = &settings.listen {
        http.listen = address(listen).await?;
    }
    http.tls = match (&settings.tls_cert, &settings.tls_key) {
        (Some(cert), Some(key)) => {
            secret::open("the key of the certificate,", key.as_ref())?;
            Some(TlsFiles { cert: cert.into(), key: key.into() })
        }
        (None, None) => None,
        _ => bail!("TLS needs both a certificate and its key; set --tls-cert and --tls-key"),
    };
    let proxies = settings.trusted_proxies.iter().map(|text| text.parse().map_err(anyhow::Error::msg));
    http.trusted_proxies = proxies.collect::<anyhow::Result<_>>()?;
    http.hosts.clone_from(&settings.hosts);
    http.login = settings.login.unwrap_or(false);
    http.rate = settings.rate.unwrap_or(http.rate);
    http.public_url.clone_from(&settings.public_url);
    http.alerts = Some(windlass_server::AlertSettings { rules: alerts.rules(), ..Default::default() });
    if let Some(most) = settings.client_connections {
        http.max_client_connections = most as usize;
    }
    if let Some(most) = settings.client_streams {
        http.max_client_streams = most as usize;
    }
    Ok(http)
}

async fn address(text: &str) -> anyhow::Result<SocketAddr> {
    let hint = || format!("{text:?} is not an address to listen on; write it as 127.0.0.1:7077");
    let mut found = tokio::net::lookup_host(text).await.with_context(hint)?;
    found.next().with_context(hint)
}
