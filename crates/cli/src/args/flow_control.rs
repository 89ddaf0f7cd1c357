//! Serial keys and rate limits, as flags of `submit` and `schedules set`.

use windlass::{RateCharge, Serial};

#[derive(clap::Args)]
pub(crate) struct FlowControl {
    /// Run it after all earlier jobs with this serial key have ended
    #[arg(long, value_name = "KEY")]
    serial: Option<String>,
    /// How many jobs of the serial key run at once, from now on [default: unchanged; 1 for a new key]
    #[arg(long, value_name = "N", requires = "serial")]
    slots: Option<u32>,
    /// Keep its slot of the serial key while it waits for a retry; otherwise the next job in line starts
    #[arg(long, requires = "serial")]
    hold: bool,
    /// Start it no faster than this rate limit allows; see `limits set`
    #[arg(long, value_name = "LIMIT")]
    rate: Option<String>,
    /// How many tokens of the rate limit it costs [default: 1]
    #[arg(long, value_name = "N", requires = "rate")]
    weight: Option<u32>,
}

impl FlowControl {
    pub(crate) fn serial(&self) -> Option<Serial> {
        let key = self.serial.clone()?;
        Some(Serial { key, slots: self.slots, keeps_slot: self.hold })
    }

    pub(crate) fn charge(&self) -> Option<RateCharge> {
        let limit = self.rate.clone()?;
        Some(RateCharge { limit, weight: self.weight.unwrap_or(1) })
    }
}
