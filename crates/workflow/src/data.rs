//! Data of the program that the code of jobs uses: connection pools, clients, configuration.
//!
//! The program gives it to the engine, one value per type; contexts return it by type. A kind can say which types it needs, and
//! then the engine does not start without them.

use std::{
    any::{Any, TypeId, type_name},
    collections::HashMap,
    panic::Location,
    sync::Arc,
};

use windlass_model::{Failure, failure::class};

/// One value per type.
#[derive(Clone, Default)]
pub struct Data {
    values: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
}

impl Data {
    /// Adds a value. Returns whether there was none of its type.
    pub fn insert<T: Send + Sync + 'static>(&mut self, value: T) -> bool {
        self.values.insert(TypeId::of::<T>(), Arc::new(value)).is_none()
    }

    /// The value of a type.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.values.get(&TypeId::of::<T>())?.downcast_ref()
    }

    /// The value of a type. If there is none, the attempt ends: another attempt in this process cannot help, so the job fails.
    #[track_caller]
    pub(crate) fn expect<T: Send + Sync + 'static>(&self) -> &T {
        match self.get() {
            Some(value) => value,
            None => end_attempt(missing(type_name::<T>(), Location::caller())),
        }
    }
}

/// The data that a kind cannot run without, by type.
///
/// ```
/// # use windlass_workflow::Needs;
/// # struct Database; struct Mailer;
/// # struct Welcome;
/// # impl Welcome {
/// fn needs() -> Needs {
///     Needs::new().data::<Database>().data::<Mailer>()
/// }
/// # }
/// # Welcome::needs();
/// ```
#[derive(Clone, Default, Debug)]
pub struct Needs {
    types: Vec<(TypeId, &'static str)>,
    database: bool,
}

impl Needs {
    /// Nothing.
    pub fn new() -> Needs {
        Needs::default()
    }

    /// Adds a type.
    pub fn data<T: Send + Sync + 'static>(mut self) -> Needs {
        self.types.push((TypeId::of::<T>(), type_name::<T>()));
        self
    }

    /// Adds the store's database: the kind runs [`Flow::transaction`](crate::Flow::transaction) or reads rows of its tables. An engine
    /// that runs jobs through a server, without access to the database, then does not start with the kind.
    pub fn database(self) -> Needs {
        Needs { database: true, ..self }
    }

    /// Whether the kind needs the store's database.
    pub fn needs_database(&self) -> bool {
        self.database
    }

    /// The names of the types that `data` does not have.
    pub fn missing(&self, data: &Data) -> Vec<&'static str> {
        let missing = self.types.iter().filter(|(id, _)| !data.values.contains_key(id));
        missing.map(|(_, name)| *name).collect()
    }
}

fn missing(name: &str, line: &Location<'_>) -> Failure {
    let text = format!(
        "the code at {}:{} asks for data of the type `{name}`, and the engine was given none; add `.data(value)` to the engine's \
         builder, and `Needs` to the kind, so that the engine does not start without it",
        line.file(),
        line.line()
    );
    Failure::stop(text).class(class::REFUSED)
}

/// Ends an attempt from inside of its code with a failure of its own, and not that of a panic.
pub fn end_attempt(failure: Failure) -> ! {
    std::panic::resume_unwind(Box::new(failure))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(PartialEq, Debug)]
    struct Limit(u32);

    #[test]
    fn a_value_is_found_by_its_type_and_the_last_one_counts() {
        let mut data = Data::default();
        assert!(data.insert(Limit(1)));
        assert!(!data.insert(Limit(2)));
        assert_eq!((data.get(), data.get::<u32>()), (Some(&Limit(2)), None));
    }

    #[test]
    fn needs_name_the_types_that_are_missing() {
        let mut data = Data::default();
        data.insert(Limit(1));
        let needs = Needs::new().data::<Limit>().data::<String>();
        assert_eq!(needs.missing(&data), ["alloc::string::String"]);
    }

    #[test]
    fn a_kind_says_that_it_needs_the_database() {
        assert!(!Needs::new().data::<Limit>().needs_database());
        assert!(Needs::new().database().data::<Limit>().needs_database());
    }

    #[test]
    fn data_that_is_missing_ends_the_attempt_with_a_failure_that_says_what_to_write() {
        let panic = std::panic::catch_unwind(|| Data::default().expect::<Limit>().0).expect_err("missing");
        let failure = panic.downcast::<Failure>().expect("a failure");
        assert_eq!(&*failure.class, class::REFUSED);
        for part in ["data.rs", "Limit", ".data(value)"] {
            assert!(failure.message.contains(part), "{failure}");
        }
    }
}
