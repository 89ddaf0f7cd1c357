//! Tasks on an engine: submits, outcomes, slots, workers.

mod outcomes;
mod slots;
mod submits;
mod workers;

use windlass::{Builder, prelude::*, store::Job};

/// What a test task does.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
enum Act {
    Return(u64),
    /// Fails in its first `times` attempts.
    FailFirst {
        times: u32,
        padding: String,
    },
    Stop,
    Cancel,
    Panic,
    Hang,
    Block(u64),
    Sleep(u64),
}

#[derive(Serialize, Deserialize, Clone, Debug)]
struct Do(Act);

impl Task for Do {
    const KIND: &'static str = "do";
    type Output = u64;
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<u64, Failure> {
        match self.0 {
            Act::Return(n) => Ok(n),
            Act::FailFirst { times, .. } if cx.attempt() <= times => {
                Err(TaskError::Busy { try_again: true }.into())
            }
            Act::FailFirst { .. } => Ok(u64::from(cx.attempt())),
            Act::Stop => Err(TaskError::Broken.into()),
            Act::Cancel => Err(Failure::cancel("no longer wanted")),
            Act::Panic => panic!("on purpose"),
            Act::Hang => std::future::pending().await,
            Act::Block(ms) => {
                std::thread::sleep(Duration::from_millis(ms));
                Ok(ms)
            }
            Act::Sleep(ms) => {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                Ok(ms)
            }
        }
    }

    fn retry() -> Retry {
        Retry::times(3).backoff(Duration::from_millis(5), Duration::from_millis(20))
    }
}

/// An error type of the task's own.
#[derive(Debug, Serialize, Deserialize, PartialEq)]
enum TaskError {
    Busy { try_again: bool },
    Broken,
}

impl From<TaskError> for Failure {
    fn from(error: TaskError) -> Failure {
        let failure = match error {
            TaskError::Busy { .. } => Failure::retry("busy").class("busy"),
            TaskError::Broken => Failure::stop("broken").class("broken"),
        };
        failure.with_detail(&error)
    }
}

fn engine(url: &str) -> Builder {
    Engine::builder(url).task::<Do>()
}

async fn started(url: &str) -> Engine {
    engine(url).start().await.expect("started")
}

async fn view(engine: &Engine, id: JobId) -> Job {
    engine.inspect().job(id).await.expect("read").expect("the job exists")
}
