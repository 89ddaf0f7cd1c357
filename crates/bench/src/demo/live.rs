//! The demo that stays: a server shows the store from the start, the crash test runs, and the company works until it is stopped.

use std::{
    io::ErrorKind,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use windlass::Engine;
use windlass_server::{Server, Settings, StartError};

use super::{
    Args,
    bakery::{self, Bakery, CardService},
    crash::CrashTest,
    place::Place,
    stop::Stop,
};
use crate::out;

/// The ports that are tried if no address was named.
const PORTS: std::ops::Range<u16> = 7077..7097;
/// How long after the schedules were set the first worker starts: one of them ticks every two seconds, so that the first of its ticks
/// passes while no worker runs, and is missed.
const UNATTENDED: Duration = Duration::from_millis(4_200);

/// Runs until the demo is stopped. Returns whether the account adds up; `None` if none was made.
pub(super) async fn run(args: &Args, place: &Place, dir: &Path, stop: Stop) -> anyhow::Result<Option<bool>> {
    let service = CardService::new();
    let engine = bakery::builder(&place.url, service).open().await;
    let engine = engine.context("the demo's store cannot be opened")?;
    if !place.is_own {
        bakery::check_store(&engine).await?;
    }
    let server = bind(&engine, args.listen).await?;
    let address = format!("http://{}", server.address());
    out::print(&format!("open {address}\n"))?;
    let mut stopped = stop.clone();
    let serving = tokio::spawn(server.run(async move { stopped.requested().await }));
    let worked = Box::pin(work(args, place, dir, &engine, service, &address, stop)).await;
    engine.stop().await;
    if !place.is_own {
        bakery::rules::drop_schedules(&engine).await?;
    }
    let adds_up = worked?;
    serving.await.context("the server failed")?;
    Ok(adds_up)
}

/// Sets the company up, and keeps it and the crash test at work.
async fn work(
    args: &Args,
    place: &Place,
    dir: &Path,
    engine: &Engine,
    service: CardService,
    address: &str,
    mut stop: Stop,
) -> anyhow::Result<Option<bool>> {
    bakery::rules::set(engine, args.statements).await?;
    let attended_at = Instant::now() + UNATTENDED;
    let test = CrashTest::submit(engine.clone(), args.tasks, args.workers).await?;
    let bakery = Bakery::open(engine.clone(), place, dir, service, args.statements).await?;
    tokio::select! {
        () = tokio::time::sleep_until(attended_at.into()) => {}
        () = stop.requested() => return Ok(None),
    }
    engine.start_maintenance().await?;
    let tested = async {
        let adds_up = test.run(&place.url, dir, stop.clone()).await?;
        if adds_up.is_some() {
            out::note(&format!("\nThe company works on: open {address}, and stop it with Ctrl-C."));
        }
        Ok(adds_up)
    };
    let (adds_up, ()) = tokio::try_join!(Box::pin(tested), Box::pin(bakery.run(stop.clone())))?;
    Ok(adds_up)
}

/// Listens at the given address, or at the first port of [`PORTS`] that is free.
async fn bind(engine: &Engine, listen: Option<SocketAddr>) -> anyhow::Result<Server> {
    let at = |listen| Settings { listen, ..Settings::default() };
    if let Some(listen) = listen {
        return Ok(Server::bind(engine.clone(), at(listen)).await?);
    }
    for port in PORTS {
        match Server::bind(engine.clone(), at((Ipv4Addr::LOCALHOST, port).into())).await {
            Err(StartError::Listen(_, error)) if error.kind() == ErrorKind::AddrInUse => {}
            bound => return Ok(bound?),
        }
    }
    let (first, last) = (PORTS.start, PORTS.end - 1);
    bail!("the ports {first} to {last} of 127.0.0.1 are all in use; name another with --listen HOST:PORT")
}
