//! Tasks of the office: payments, mail, letters, reports.

use serde::{Deserialize, Serialize};
use windlass::{
    Failure, Needs, Retry, Task, TaskCx,
    span::{minutes, seconds},
};

use super::{super::CardService, LETTERS, MAIL, PAYMENTS, REPORTS, work};

/// Charges the card of a customer. While the card service is down, payments are tried again until they have no attempts left.
#[derive(Serialize, Deserialize)]
pub(crate) struct ChargeCard {
    pub(crate) receipt: u32,
    pub(crate) cents: u32,
}

/// The class of a payment that failed because the card service was down.
pub(crate) const SERVICE_DOWN: &str = "card_service_down";

impl Task for ChargeCard {
    const KIND: &'static str = "charge_card";
    const QUEUE: &'static str = PAYMENTS;
    /// What was charged.
    type Output = u32;
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<u32, Failure> {
        if cx.data::<CardService>().is_down() {
            work(300..=600).await;
            return Err(
                Failure::retry("the card service answered 503 Service Unavailable").class(SERVICE_DOWN)
            );
        }
        work(120..=450).await;
        if self.receipt % 90 == 31 {
            return Err(Failure::stop("the card was declined").class("card_declined"));
        }
        Ok(self.cents)
    }

    fn retry() -> Retry {
        Retry::rules().on(SERVICE_DOWN, 6).backoff(seconds(3), seconds(40)).otherwise(3)
    }

    fn needs() -> Needs {
        Needs::new().data::<CardService>()
    }
}

/// Sends an e-mail to a customer, under the rate limit of the mail service.
#[derive(Serialize, Deserialize)]
pub(crate) struct SendEmail {
    pub(crate) customer: u32,
    pub(crate) subject: String,
}

impl Task for SendEmail {
    const KIND: &'static str = "send_email";
    const QUEUE: &'static str = MAIL;
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        work(80..=300).await;
        if self.customer % 250 == 77 {
            return Err(Failure::stop(format!("customer {} has no e-mail address", self.customer))
                .class("address_missing"));
        }
        if fastrand::u8(0..100) < 3 {
            return Err(Failure::retry("the mail service asks to try again later")
                .class("mail_deferred")
                .retry_after(seconds(12)));
        }
        Ok(())
    }

    fn retry() -> Retry {
        Retry::times(10).backoff(seconds(5), minutes(2))
    }
}

/// Prints a letter to a customer.
#[derive(Serialize, Deserialize)]
pub(crate) struct PrintLetter {
    pub(crate) customer: u32,
}

impl Task for PrintLetter {
    const KIND: &'static str = "print_letter";
    const QUEUE: &'static str = LETTERS;
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        work(400..=900).await;
        Ok(())
    }
}

/// Exports the sales of all shops. It takes longer than the interval of its schedule, whose ticks are skipped meanwhile.
#[derive(Serialize, Deserialize)]
pub(crate) struct ExportSales {}

impl Task for ExportSales {
    const KIND: &'static str = "export_sales";
    const QUEUE: &'static str = REPORTS;
    /// How many rows.
    type Output = u32;
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<u32, Failure> {
        for shop in 0..12 {
            cx.progress(shop, 12, "shops");
            work(1_700..=2_500).await;
        }
        Ok(fastrand::u32(3_000..5_000))
    }
}

/// Copies the recipes to another place.
#[derive(Serialize, Deserialize)]
pub(crate) struct BackUpRecipes {}

impl Task for BackUpRecipes {
    const KIND: &'static str = "back_up_recipes";
    const QUEUE: &'static str = REPORTS;
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        work(3_000..=6_000).await;
        Ok(())
    }
}
