//! Rows that a query returned.

use std::sync::Arc;

use windlass_model::{Failure, failure::class};

use super::value::{FromValue, Value};

/// A row that a query returned.
#[derive(Clone, Debug)]
pub struct Row {
    columns: Arc<[String]>,
    /// The value of each column, or why it has none.
    values: Vec<Result<Value, String>>,
}

impl Row {
    pub(crate) fn new(columns: &Arc<[String]>, values: Vec<Result<Value, String>>) -> Row {
        Row { columns: Arc::clone(columns), values }
    }

    /// Reads a column, by its name or by its position from 0. The type decides how: `let total: i64 = row.get("total")?;`.
    ///
    /// Fails if there is no such column, or its value does not fit the type; the error names the column. A column that may be
    /// null is read as an `Option`.
    pub fn get<T: FromValue>(&self, column: impl Column) -> Result<T, Failure> {
        let error = |why: String| Err(Failure::stop(why).class(class::DATA));
        let Some(position) = column.position(&self.columns) else {
            let known = match self.columns.is_empty() {
                true => "it has none".to_owned(),
                false => format!("it has {}", self.columns.join(", ")),
            };
            return error(format!("the row has no column {}; {known}", column.describe()));
        };
        let value = match &self.values[position] {
            Ok(value) => T::from_value(value),
            Err(why) => Err(why.clone()),
        };
        match value {
            Ok(value) => Ok(value),
            Err(why) => error(format!(
                "the column {:?} cannot be read as {}: {why}",
                self.columns[position],
                std::any::type_name::<T>()
            )),
        }
    }

    /// The names of its columns, in order.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }
}

/// A column of a row: its name, or its position from 0.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not name a column",
    note = "pass the column's name as `&str`, or its position as `usize`"
)]
pub trait Column {
    /// Its position in a row with these columns.
    fn position(&self, columns: &[String]) -> Option<usize>;

    /// How an error names it.
    fn describe(&self) -> String;
}

impl Column for usize {
    fn position(&self, columns: &[String]) -> Option<usize> {
        (*self < columns.len()).then_some(*self)
    }

    fn describe(&self) -> String {
        format!("number {self} (counted from 0)")
    }
}

impl Column for &str {
    fn position(&self, columns: &[String]) -> Option<usize> {
        columns.iter().position(|column| column.eq_ignore_ascii_case(self))
    }

    fn describe(&self) -> String {
        format!("{self:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        let columns = ["id", "guest", "period"].map(str::to_owned).into();
        let values = vec![Ok(Value::Int(7)), Ok(Value::Null), Err("its type is range".to_owned())];
        Row::new(&columns, values)
    }

    #[test]
    fn columns_are_read_by_name_and_by_position() {
        assert_eq!(row().get("id"), Ok(7_i64));
        assert_eq!(row().get("ID"), Ok(7_u8));
        assert_eq!(row().get(1), Ok(None::<String>));
    }

    #[test]
    fn errors_name_the_column() {
        let text = |error: Result<String, Failure>| error.expect_err("it cannot be read").message;
        assert_eq!(text(row().get("name")), "the row has no column \"name\"; it has id, guest, period");
        assert_eq!(
            text(row().get(3)),
            "the row has no column number 3 (counted from 0); it has id, guest, period"
        );
        assert!(text(row().get("guest")).starts_with("the column \"guest\" cannot be read as "));
        assert!(text(row().get("period")).ends_with(": its type is range"));
        assert!(text(row().get("id")).ends_with(": it is the integer 7"));
    }
}
