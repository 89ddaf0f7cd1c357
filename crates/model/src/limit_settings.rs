//! The limits that can be set, and what each is called: in the store's URL, in the settings file and in the environment.

use crate::limits::{Invalid, invalid, quoted};

macro_rules! limits {
    ($($(#[$doc:meta])* $name:ident = $default:expr,)*) => {
        /// What may be submitted. Each limit is a setting of the same name; see [`Limits::NAMES`].
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct Limits {
            $($(#[$doc])* pub $name: usize,)*
        }

        impl Default for Limits {
            fn default() -> Limits {
                Limits { $($name: $default,)* }
            }
        }

        impl Limits {
            /// The names of all limits.
            pub const NAMES: &[&str] = &[$(stringify!($name),)*];

            /// A limit by its name.
            pub fn get(&self, name: &str) -> Option<usize> {
                match name {
                    $(stringify!($name) => Some(self.$name),)*
                    _ => None,
                }
            }

            /// Sets a limit by its name. Whether there is one.
            pub fn set(&mut self, name: &str, value: usize) -> bool {
                match name {
                    $(stringify!($name) => self.$name = value,)*
                    _ => return false,
                }
                true
            }
        }
    };
}

limits! {
    /// The longest encoded input, output, result of a call or payload of a signal, in bytes.
    payload = 1 << 20,
    /// The most signals that may wait in one job's inbox.
    inbox = 1_000,
    /// The longest value in the context of a workflow, in bytes: it is written whole, and shown in lists.
    context = 16 << 10,
    /// The most bytes of payloads that one step may write together: they are written by one transaction, within ten
    /// seconds, and PostgreSQL takes at most 1 GiB at once.
    step = 64 << 20,
}

impl Limits {
    /// What a limit is called as a parameter of the store's URL.
    pub fn url_parameter(name: &str) -> String {
        format!("limit_{name}")
    }

    /// What a limit is called in the environment.
    pub fn env_variable(name: &str) -> String {
        format!("WINDLASS_LIMIT_{}", name.to_uppercase())
    }

    /// How a limit is raised, for the errors that name it.
    pub fn raise_hint(name: &str) -> String {
        let (parameter, variable) = (Limits::url_parameter(name), Limits::env_variable(name));
        format!(
            "raise the limit (`{parameter}` in the store's URL, `limits.{name}` in the settings file, or {variable})"
        )
    }

    /// Reads the value of a limit: a number, or one of KiB or MiB.
    pub fn parse(name: &str, text: &str) -> Result<usize, Invalid> {
        let (digits, unit) = match (text.strip_suffix("KiB"), text.strip_suffix("MiB")) {
            (Some(digits), _) => (digits, 1 << 10),
            (_, Some(digits)) => (digits, 1 << 20),
            _ => (text, 1),
        };
        let value = digits.trim().parse::<usize>().ok().and_then(|number| number.checked_mul(unit));
        value.filter(|value| *value > 0).ok_or_else(|| {
            let what = format!("the limit {name} of {}", quoted(text));
            invalid(what, "is no number above zero", "write it like 1000, 64KiB or 4MiB")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_has_a_name_under_which_it_is_set_and_read() {
        let mut limits = Limits::default();
        for (place, name) in Limits::NAMES.iter().enumerate() {
            assert!(limits.get(name).is_some_and(|value| value > 0), "{name}");
            assert!(limits.set(name, 1_000_000 + place));
            assert_eq!(limits.get(name), Some(1_000_000 + place));
            let raise = Limits::raise_hint(name);
            assert!(
                raise.contains(&format!("limits.{name}")) && raise.contains("WINDLASS_LIMIT_"),
                "{raise}"
            );
        }
        assert!(!limits.set("patience", 1) && limits.get("patience").is_none());
    }

    #[test]
    fn values_are_numbers_or_sizes() {
        for (text, value) in [("7", 7), ("64KiB", 65_536), ("4 MiB", 4 << 20)] {
            assert_eq!(Limits::parse("payload", text), Ok(value), "{text}");
        }
        for text in ["", "0", "-1", "4GB", "lots", "99999999999999999999MiB"] {
            let error = Limits::parse("payload", text).expect_err(text).to_string();
            assert!(error.contains("the limit payload of") && error.contains("4MiB"), "{error}");
        }
    }
}
