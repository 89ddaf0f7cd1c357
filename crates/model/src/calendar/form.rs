//! A calendar in JSON: `{"cron": {"expression": "0 3 * * *", "zone": "Europe/Berlin"}}` or
//! `{"every": {"count": 15, "unit": "minutes"}}`. What is read is checked like what is made.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use super::{Cron, Every, Unit, Zone};
use crate::Time;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CronForm {
    expression: String,
    #[serde(default = "utc")]
    zone: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EveryForm {
    count: u32,
    unit: Unit,
    #[serde(default = "utc")]
    zone: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    anchor: Option<Time>,
}

fn utc() -> String {
    Zone::UTC.name().to_owned()
}

impl Serialize for Cron {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let form = CronForm { expression: self.expression().to_owned(), zone: self.zone().name().to_owned() };
        form.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Cron {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Cron, D::Error> {
        let form = CronForm::deserialize(from)?;
        let zone = Zone::named(&form.zone).map_err(D::Error::custom)?;
        Cron::new(&form.expression, zone).map_err(D::Error::custom)
    }
}

impl Serialize for Every {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let zone = self.zone().name().to_owned();
        EveryForm { count: self.count(), unit: self.unit(), zone, anchor: self.anchor() }.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Every {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Every, D::Error> {
        let form = EveryForm::deserialize(from)?;
        let zone = Zone::named(&form.zone).map_err(D::Error::custom)?;
        Every::new(form.count, form.unit, zone, form.anchor).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Calendar;

    #[test]
    fn json_comes_back_as_it_went() {
        for text in [
            "every 15 minutes",
            "0 3 * * mon-fri in Europe/Berlin",
            "every 2 months in Asia/Kolkata from 2027-01-31T08:00:00.000000Z",
        ] {
            let calendar: Calendar = text.parse().expect(text);
            let json = serde_json::to_string(&calendar).expect("JSON");
            assert_eq!(serde_json::from_str::<Calendar>(&json).expect(&json), calendar);
        }
        let short: Calendar =
            serde_json::from_str(r#"{"every":{"count":15,"unit":"minutes"}}"#).expect("read");
        assert_eq!(short.to_string(), "every 15 minutes");
    }

    #[test]
    fn json_is_checked() {
        for (json, said) in [
            (r#"{"every":{"count":0,"unit":"minutes"}}"#, "count from 1"),
            (r#"{"cron":{"expression":"0 0 30 2 *"}}"#, "never fires"),
            (r#"{"cron":{"expression":"@daily","zone":"Berlin"}}"#, "did you mean Europe/Berlin?"),
            (r#"{"cron":{"expression":"@daily","tz":"UTC"}}"#, "unknown field"),
        ] {
            let error = serde_json::from_str::<Calendar>(json).expect_err(json).to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
