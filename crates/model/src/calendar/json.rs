//! A calendar as JSON: `{"cron": {"expression": "0 3 * * *", "zone": "Europe/Berlin"}}` or
//! `{"every": {"count": 15, "unit": "minutes"}}`. Deserializing checks it like the constructors do.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use super::{Cron, Every, Unit, Zone};
use crate::Time;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CronJson {
    expression: String,
    #[serde(default = "utc")]
    zone: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EveryJson {
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
        let json = CronJson { expression: self.expression().to_owned(), zone: self.zone().name().to_owned() };
        json.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Cron {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Cron, D::Error> {
        let json = CronJson::deserialize(from)?;
        let zone = Zone::named(&json.zone).map_err(D::Error::custom)?;
        Cron::new(&json.expression, zone).map_err(D::Error::custom)
    }
}

impl Serialize for Every {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let zone = self.zone().name().to_owned();
        EveryJson { count: self.count(), unit: self.unit(), zone, anchor: self.anchor() }.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Every {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Every, D::Error> {
        let json = EveryJson::deserialize(from)?;
        let zone = Zone::named(&json.zone).map_err(D::Error::custom)?;
        Every::new(json.count, json.unit, zone, json.anchor).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Calendar;

    #[test]
    fn calendars_serialize_and_deserialize_the_same() {
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
            serde_json::from_str(r#"{"every":{"count":15,"unit":"minutes"}}"#).expect("valid");
        assert_eq!(short.to_string(), "every 15 minutes");
    }

    #[test]
    fn invalid_json_is_refused() {
        for (json, expected) in [
            (r#"{"every":{"count":0,"unit":"minutes"}}"#, "count from 1"),
            (r#"{"cron":{"expression":"0 0 30 2 *"}}"#, "never fires"),
            (r#"{"cron":{"expression":"@daily","zone":"Berlin"}}"#, "did you mean Europe/Berlin?"),
            (r#"{"cron":{"expression":"@daily","tz":"UTC"}}"#, "unknown field"),
        ] {
            let error = serde_json::from_str::<Calendar>(json).expect_err(json).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
