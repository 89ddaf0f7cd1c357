//! A machine that polls a slow service. Its stage keeps the growing interval between two polls, so that it continues after a
//! restart where it was. It takes no slot while it waits.
//!
//! Run it with `cargo run -p windlass --example long_poll`.

use std::{sync::Mutex, time::Instant};

use windlass::prelude::*;

/// A service that renders films, in this process for the sake of the example: one film, ready after a second. The third
/// request fails. The engine gives it to the machine, as it would a client of a real service.
struct Service {
    begin: Instant,
    ready_at: Option<Instant>,
    requests: u32,
}

enum Answer {
    Rendering,
    Ready(String),
}

impl Service {
    /// Begins to render. A repeated request changes nothing.
    fn request(&mut self) {
        self.ready_at.get_or_insert_with(|| Instant::now() + Duration::from_secs(1));
    }

    fn poll(&mut self) -> Result<Answer, std::io::Error> {
        self.requests += 1;
        if self.requests == 3 {
            return Err(std::io::Error::other("the service does not answer"));
        }
        let ready = self.ready_at.is_some_and(|at| at <= Instant::now());
        Ok(if ready { Answer::Ready("film.mp4".into()) } else { Answer::Rendering })
    }
}

#[derive(Serialize, Deserialize)]
enum Render {
    Request { film: String },
    Poll { film: String, wait_ms: u64 },
    Publish { film: String, file: String },
}

/// The first and the longest interval between two polls, in milliseconds.
const WAITS: (u64, u64) = (25, 400);

impl Machine for Render {
    const KIND: &'static str = "render";
    type Output = String;
    type Error = Failure;

    fn needs() -> Needs {
        Needs::new().data::<Mutex<Service>>()
    }

    async fn step(self, cx: &MachineCx) -> Result<Next<Render>, Failure> {
        let mut service = cx.data::<Mutex<Service>>().lock().expect("nobody panics here");
        Ok(match self {
            Render::Request { film } => {
                service.request();
                Next::to(Render::Poll { film, wait_ms: WAITS.0 })
            }
            Render::Poll { film, wait_ms } => {
                let answer = service.poll();
                println!(
                    "  {:>4} ms  poll {}: {}",
                    service.begin.elapsed().as_millis(),
                    cx.attempt(),
                    match &answer {
                        Ok(Answer::Rendering) => format!("not yet, again in {wait_ms} ms"),
                        Ok(Answer::Ready(file)) => format!("{file} is ready"),
                        Err(error) => format!("{error}: the retry policy of this stage decides"),
                    }
                );
                match answer? {
                    Answer::Ready(file) => Next::to(Render::Publish { film, file }),
                    Answer::Rendering => {
                        let longer = (wait_ms * 2).min(WAITS.1);
                        Next::retry_after(
                            Render::Poll { film, wait_ms: longer },
                            Duration::from_millis(wait_ms),
                        )
                    }
                }
            }
            Render::Publish { film, file } => Next::done(format!("{film} is published as {file}")),
        })
    }

    /// Errors of the service have a retry policy of their own. Polls without an error do not count as retries.
    fn retry(&self) -> Retry {
        match self {
            Render::Poll { .. } => {
                Retry::times(5).backoff(Duration::from_millis(100), Duration::from_secs(1))
            }
            _ => Retry::times(3),
        }
    }

    fn timeout(&self) -> Option<Duration> {
        Some(seconds(10))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let url = format!("sqlite://{}", dir.path().join("work.db").display());
    let service = Mutex::new(Service { begin: Instant::now(), ready_at: None, requests: 0 });
    let engine = Engine::builder(&url).data(service).machine::<Render>().start().await?;

    println!("a film is rendered:");
    // However often it polls, it fails after ten seconds.
    let deadline = engine.inspect().clock().await? + seconds(10);
    let job = engine.submit(Render::Request { film: "holiday".into() }).deadline(deadline).await?;
    println!("  {}", job.result().await?);

    println!("its transitions:");
    for step in engine.inspect().transitions(job.id(), None, 100).await? {
        println!("  {} → {}, {}", step.stage, step.next.as_deref().unwrap_or("the end"), step.outcome);
    }
    for attempt in engine.inspect().history(job.id()).await? {
        println!("  a failed attempt: {}", attempt.failure.message);
    }
    engine.stop().await;
    Ok(())
}
