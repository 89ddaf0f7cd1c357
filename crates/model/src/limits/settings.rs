//! The limits that can be set, and the name of each in the store's URL, in the settings file and in the environment.

use super::{Invalid, invalid, quoted};

/// Declares the limits with their defaults, and lists them by name, so that every limit can be set wherever settings are read.
macro_rules! limits {
    ($($(#[$doc:meta])* $name:ident = $default:expr,)*) => {
        /// The limits that can be set. Each is a setting of the same name; see [`Limits::NAMES`].
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

            /// Returns a limit by its name.
            pub fn get(&self, name: &str) -> Option<usize> {
                match name {
                    $(stringify!($name) => Some(self.$name),)*
                    _ => None,
                }
            }

            /// Sets a limit by its name. Returns whether there is one.
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
    /// The most signals in one job's inbox.
    inbox = 1_000,
    /// The longest value in the context of a workflow, in bytes: a change rewrites all of it, and lists show it.
    context = 16 << 10,
    /// The most payload bytes that one step may write: one transaction must write them within ten seconds, and PostgreSQL takes
    /// at most 1 GiB at once.
    step = 64 << 20,
}

impl Limits {
    /// Returns the name of a limit as a parameter of the store's URL.
    pub fn url_parameter(name: &str) -> String {
        format!("limit_{name}")
    }

    /// Returns the name of a limit in the environment.
    pub fn env_variable(name: &str) -> String {
        format!("WINDLASS_LIMIT_{}", name.to_uppercase())
    }

    /// Returns how to raise a limit, for the errors that name it.
    pub fn raise_hint(name: &str) -> String {
        let (parameter, variable) = (Limits::url_parameter(name), Limits::env_variable(name));
        format!(
            "raise the limit (`{parameter}` in the store's URL, `limits.{name}` in the settings file, or {variable})"
        )
    }

    /// Parses the value of a limit: a number, or a number of KiB or MiB.
    pub fn parse(name: &str, text: &str) -> Result<usize, Invalid> {
        let (digits, unit) = match (text.strip_suffix("KiB"), text.strip_suffix("MiB")) {
            (Some(digits), _) => (digits, 1 << 10),
            (_, Some(digits)) => (digits, 1 << 20),
            _ => (text, 1),
        };
        let value = digits.trim().parse::<usize>().ok().and_then(|number| number.checked_mul(unit));
        value.filter(|value| *value > 0).ok_or_else(|| {
            let what = format!("the limit {name} of {}", quoted(text));
            invalid(what, "is not a number above zero", "write it like 1000, 64KiB or 4MiB")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_can_be_set_and_read_by_its_name() {
        let mut limits = Limits::default();
        for (index, name) in Limits::NAMES.iter().enumerate() {
            assert!(limits.get(name).is_some_and(|value| value > 0), "{name}");
            assert!(limits.set(name, 1_000_000 + index));
            assert_eq!(limits.get(name), Some(1_000_000 + index));
            let hint = Limits::raise_hint(name);
            assert!(hint.contains(&format!("limits.{name}")) && hint.contains("WINDLASS_LIMIT_"), "{hint}");
        }
        assert!(!limits.set("patience", 1) && limits.get("patience").is_none());
    }

    #[test]
    fn values_parse_as_numbers_or_sizes() {
        for (text, value) in [("7", 7), ("64KiB", 65_536), ("4 MiB", 4 << 20)] {
            assert_eq!(Limits::parse("payload", text), Ok(value), "{text}");
        }
        for text in ["", "0", "-1", "4GB", "lots", "99999999999999999999MiB"] {
            let error = Limits::parse("payload", text).expect_err(text).to_string();
            assert!(error.contains("the limit payload of") && error.contains("4MiB"), "{error}");
        }
    }
}
