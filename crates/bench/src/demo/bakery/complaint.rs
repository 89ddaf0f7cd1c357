//! The complaint of a customer: a machine that waits for photos, a laboratory, decisions of people and a bank.

use serde::{Deserialize, Serialize};
use windlass::{
    Failure, Machine, MachineCx, Next, Retry,
    span::{minutes, seconds},
};

use super::kinds::{OFFICE, work};

/// How often a customer is reminded of the photo.
const REMINDERS: u32 = 2;
/// How often the laboratory is asked before it has a result.
const INQUIRIES: u32 = 3;

#[derive(Serialize, Deserialize)]
pub(super) enum Complaint {
    /// It came in.
    Received { number: u32 },
    /// The customer is to send a photo, and is reminded of it.
    AwaitPhoto { number: u32, reminders: u32 },
    /// The photo is examined.
    Assess { number: u32 },
    /// A sample is in the laboratory, which is asked again and again.
    Laboratory { number: u32, inquiries: u32 },
    /// Somebody in the office decides.
    AwaitDecision { number: u32 },
    /// The customer gets the money back.
    Refund { number: u32 },
    /// The bank takes its time.
    Transfer { number: u32 },
}

/// The decision of somebody in the office.
#[derive(Serialize, Deserialize)]
pub(super) struct Decision {
    pub(super) refund: bool,
    pub(super) by: String,
}

/// The photo of a customer.
#[derive(Serialize, Deserialize)]
pub(super) struct Photo {
    pub(super) file: String,
}

impl Photo {
    pub(super) fn of(number: u32) -> Photo {
        Photo { file: format!("photos/{number}.jpg") }
    }
}

impl Machine for Complaint {
    const KIND: &'static str = "complaint";
    const QUEUE: &'static str = OFFICE;
    /// What came of it.
    type Output = String;
    type Error = Failure;

    async fn step(self, cx: &MachineCx) -> Result<Next<Complaint>, Failure> {
        work(30..=250).await;
        Ok(match self {
            Complaint::Received { number } => await_photo(number, 0),
            Complaint::AwaitPhoto { number, reminders } => match cx.signal::<Photo>("photo")? {
                Some(_) => Next::to(Complaint::Assess { number }),
                None if reminders < REMINDERS => await_photo(number, reminders + 1),
                None => Next::done("closed: no photo came".into()),
            },
            Complaint::Assess { number } => match number % 10 {
                0..=2 => inquire(number, 0),
                3..=6 => await_decision(number),
                _ => Next::to(Complaint::Refund { number }),
            },
            Complaint::Laboratory { number, .. } if number % 40 == 1 => {
                let why = format!("the laboratory has lost sample {}", number % 900 + 100);
                Next::fail(Failure::stop(why).class("sample_lost"))
            }
            Complaint::Laboratory { number, inquiries } if inquiries < INQUIRIES => {
                inquire(number, inquiries + 1)
            }
            Complaint::Laboratory { number, .. } => await_decision(number),
            Complaint::AwaitDecision { number } => match cx.signal::<Decision>("decision")? {
                Some(Decision { refund: true, .. }) => Next::to(Complaint::Refund { number }),
                Some(Decision { by, .. }) => Next::done(format!("rejected by {by}")),
                None => {
                    Next::fail(Failure::stop("nobody decided within 40 minutes").class("decision_overdue"))
                }
            },
            Complaint::Refund { number } if fastrand::u8(0..100) < 8 => {
                return Err(Failure::retry(format!("the account of complaint {number} is locked"))
                    .class("account_locked"));
            }
            Complaint::Refund { number } => {
                Next::sleep(Complaint::Transfer { number }, seconds(90 + u64::from(number % 8) * 60))
            }
            Complaint::Transfer { .. } => Next::done("refunded".into()),
        })
    }

    fn retry(&self) -> Retry {
        Retry::times(8).backoff(seconds(4), minutes(1))
    }
}

/// Waits for the photo; some customers take longer than others.
fn await_photo(number: u32, reminders: u32) -> Next<Complaint> {
    let patience = seconds(100 + u64::from(number % 7) * 40);
    Next::wait(Complaint::AwaitPhoto { number, reminders }, "photo").timeout(patience)
}

fn inquire(number: u32, inquiries: u32) -> Next<Complaint> {
    Next::sleep(Complaint::Laboratory { number, inquiries }, seconds(60 + u64::from(number % 4) * 30))
}

fn await_decision(number: u32) -> Next<Complaint> {
    Next::wait(Complaint::AwaitDecision { number }, "decision").timeout(minutes(40))
}
