//! An expense that somebody has to approve: it waits for a decision, or for the time after which it is withdrawn.
//!
//! Run it with `cargo run -p windlass --example expense`, and decide from another terminal with the command that it prints. If
//! you do not within five seconds, the program plays the human; with `-- nobody` it does not, and the expense is withdrawn.

use windlass::prelude::*;

#[derive(Serialize, Deserialize)]
struct Expense {
    what: String,
    cents: u64,
}

/// What a human says.
#[derive(Serialize, Deserialize)]
struct Decision {
    approved: bool,
    by: String,
}

/// How long the humans may take. In an office it would be two weeks; it costs no more.
const PATIENCE: Duration = seconds(8);

impl Workflow for Expense {
    const KIND: &'static str = "expense";
    type Output = String;
    type Error = AnyError;

    async fn run(self, flow: Flow) -> Result<String, AnyError> {
        let Expense { what, cents } = &self;
        let manager = flow
            .step("find_manager", || async move {
                println!("  asking for {what}, {cents} cents");
                Ok::<_, AnyError>("the manager".to_owned())
            })
            .await?;
        // What others can read while it waits.
        flow.context().set("waits_for", &manager)?;

        // Until one of the two is there the job is a row in the store: it takes no slot and no memory.
        let decision = flow.signal::<Decision>("decision");
        let late = flow.sleep(PATIENCE).name("late");
        match flow.select("decided", (decision, late)).await {
            First2::A(decision) => {
                let Decision { approved, by } = decision?;
                if !approved {
                    return Ok(format!("{by} said no to {what}"));
                }
                flow.step("pay", || async move {
                    println!("  paying {cents} cents");
                    Ok::<_, AnyError>(())
                })
                .await?;
                Ok(format!("{by} approved {what}, and it is paid"))
            }
            First2::B(()) => Ok(format!("{what} is withdrawn: {manager} did not answer within {PATIENCE:?}")),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = "sqlite://expense.db";
    let nobody = std::env::args().nth(1).as_deref() == Some("nobody");
    let engine = Engine::open(url).await?.workflow::<Expense>().start().await?;
    let job = engine.submit(Expense { what: "a train ticket".into(), cents: 4_200 }).await?;
    let id = job.id();
    println!("decide from another terminal:");
    println!("  windlass --store {url} signal {id} decision '{{\"approved\": true, \"by\": \"you\"}}'");

    let mut ended = std::pin::pin!(job.result());
    let output = tokio::select! {
        output = &mut ended => output?,
        () = tokio::time::sleep(seconds(5)), if !nobody => {
            println!("nobody did; the program says yes");
            // It may have been decided in this moment; then the job takes no more signals.
            let yes = Decision { approved: true, by: "the program".into() };
            let _ = engine.signal(id, "decision", yes).dedup("the program's").await;
            ended.await?
        }
    };
    println!("{output}");
    println!("look at it: windlass --store {url} show {id}");
    println!("draw it:    windlass --store {url} diagram {id} --svg expense.svg");
    engine.stop().await;
    Ok(())
}
