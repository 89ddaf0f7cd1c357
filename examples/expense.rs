//! An expense that a person must approve: it waits for a decision, and is withdrawn if none comes in time.
//!
//! Run it with `cargo run -p windlass --example expense`, and decide from another terminal with the command that it prints. If
//! you do not decide within five seconds, the program approves it; with `-- wait` it does not, and the expense is withdrawn.

use windlass::prelude::*;

#[derive(Serialize, Deserialize)]
struct Expense {
    what: String,
    cents: u64,
}

/// The decision of a person.
#[derive(Serialize, Deserialize)]
struct Decision {
    approved: bool,
    by: String,
}

/// How long the expense waits. In an office it would be two weeks, which costs no more.
const DECISION_TIME: Duration = seconds(8);

impl Workflow for Expense {
    const KIND: &'static str = "expense";
    type Output = String;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<String, Failure> {
        let Expense { what, cents } = &self;
        let manager = flow
            .step("find_manager", || async move {
                println!("  asking for {what}, {cents} cents");
                Ok("the manager".to_owned())
            })
            .await?;
        // Others can read this while the job waits.
        flow.context().set("waits_for", &manager)?;

        // Until one of the two happens, the job is a row in the store: it takes no slot and no memory.
        let decision = flow.signal::<Decision>("decision");
        let late = flow.sleep(DECISION_TIME).name("late");
        match flow.select("decided", (decision, late)).await {
            First2::A(decision) => {
                let Decision { approved, by } = decision?;
                if !approved {
                    return Ok(format!("{by} declined {what}"));
                }
                flow.step("pay", || async move {
                    println!("  paying {cents} cents");
                    Ok(())
                })
                .await?;
                Ok(format!("{by} approved {what}, and it is paid"))
            }
            First2::B(()) => {
                Ok(format!("{what} is withdrawn: {manager} did not answer within {DECISION_TIME:?}"))
            }
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = "sqlite://expense.db";
    let waits = std::env::args().nth(1).as_deref() == Some("wait");
    let engine = Engine::builder(url).workflow::<Expense>().start().await?;
    let job = engine.submit(Expense { what: "a train ticket".into(), cents: 4_200 }).await?;
    let id = job.id();
    println!("decide from another terminal:");
    println!("  windlass --store {url} signal {id} decision '{{\"approved\": true, \"by\": \"you\"}}'");

    let mut ended = std::pin::pin!(job.result());
    let output = tokio::select! {
        output = &mut ended => output?,
        () = tokio::time::sleep(seconds(5)), if !waits => {
            println!("no decision; the program approves it");
            // If it was decided at this moment, the job has ended and takes no more signals.
            let decision = Decision { approved: true, by: "the program".into() };
            let _ = engine.signal(id, "decision", decision).dedup("the program's").await;
            ended.await?
        }
    };
    println!("{output}");
    println!("show it:    windlass --store {url} show {id}");
    println!("draw it:    windlass --store {url} diagram {id} --svg expense.svg");
    engine.stop().await;
    Ok(())
}
