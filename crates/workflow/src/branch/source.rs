//! Sources: the items that the children of a branch are made of.
//!
//! A source is read in chunks. The position after a chunk is committed with the chunk's children, so that a crash costs one
//! chunk at most and a source of a million items is never in memory. A source without keys of its own (an iterator, a stream)
//! is skipped forward to that position: it must yield the same items in the same order again.

use std::{future::Future, pin::Pin};

use futures_util::{Stream, StreamExt};
use serde::de::DeserializeOwned;
use windlass_model::{Failure, failure::class};
use windlass_store::{Error, SourceRow, Store};

/// The items that the children of a branch are made of: anything that can be iterated, streams ([`StreamSource`]), and [`Rows`] of your own
/// tables.
pub trait Source: Send + 'static {
    /// What it yields.
    type Item: Send;

    /// Opens it after the items that were read before.
    #[doc(hidden)]
    fn open(self, from: SourceStart) -> impl SourceReader<Item = Self::Item>;
}

/// The position where reading continues.
#[doc(hidden)]
#[derive(Clone, Debug, Default)]
pub struct SourceStart {
    /// The number of items that were read.
    pub n: u64,
    /// The key of the last one, as the store reads it.
    pub after: Option<String>,
}

/// A source that is being read.
#[doc(hidden)]
pub trait SourceReader: Send + 'static {
    /// What it yields.
    type Item: Send;

    /// Returns the next items, at most `limit`; fewer only at the end.
    fn next(
        &mut self,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<SourceItem<Self::Item>>, Failure>> + Send;

    /// Returns the item before the position where reading continues, if it can be read again.
    fn last(&mut self) -> impl Future<Output = Result<PreviousItem<Self::Item>, Failure>> + Send;
}

/// An item of a source.
#[doc(hidden)]
pub struct SourceItem<T> {
    /// Its key; `None` if it is numbered.
    pub key: Option<String>,
    /// Its key, as the store compares it.
    pub after: Option<String>,
    /// The item.
    pub item: T,
}

/// The item before the position where reading continues.
#[doc(hidden)]
pub enum PreviousItem<T> {
    /// It is not read again, because its key was kept.
    Keyed,
    /// The item.
    Item(T),
    /// The source ended before it, after this many items.
    Ended(u64),
}

/// An iterator that is being read.
pub(super) struct IterReader<I> {
    iter: I,
    skip: u64,
}

impl<I> Source for I
where
    I: IntoIterator + Send + 'static,
    I::IntoIter: Send + 'static,
    I::Item: Send,
{
    type Item = I::Item;

    fn open(self, from: SourceStart) -> impl SourceReader<Item = I::Item> {
        IterReader { iter: self.into_iter(), skip: from.n }
    }
}

impl<I> SourceReader for IterReader<I>
where
    I: Iterator + Send + 'static,
    I::Item: Send,
{
    type Item = I::Item;

    async fn next(&mut self, limit: usize) -> Result<Vec<SourceItem<I::Item>>, Failure> {
        Ok(self.iter.by_ref().take(limit).map(|item| SourceItem { key: None, after: None, item }).collect())
    }

    async fn last(&mut self) -> Result<PreviousItem<I::Item>, Failure> {
        // Counted as well as skipped, so that the error can say how long a source is that has become shorter.
        let mut n = 0;
        let skip = usize::try_from(self.skip).unwrap_or(usize::MAX);
        let last = self.iter.by_ref().take(skip).inspect(|_| n += 1).last();
        Ok(match last {
            Some(item) if n == self.skip => PreviousItem::Item(item),
            _ => PreviousItem::Ended(n),
        })
    }
}

/// A stream that children are spawned from; see [`StreamSource::new`].
pub struct StreamSource<F> {
    make: F,
}

impl<F> StreamSource<F> {
    /// Spawns children from an async stream. If the workflow is replayed before the branch is sealed, the stream is made again and
    /// must yield the same items in the same order.
    pub fn new<S>(make: F) -> StreamSource<F>
    where
        F: FnOnce() -> S + Send + 'static,
        S: Stream + Send + 'static,
        S::Item: Send,
    {
        StreamSource { make }
    }
}

/// A stream that is being read.
pub(super) struct StreamReader<T> {
    stream: Pin<Box<dyn Stream<Item = T> + Send>>,
    skip: u64,
}

impl<F, S> Source for StreamSource<F>
where
    F: FnOnce() -> S + Send + 'static,
    S: Stream + Send + 'static,
    S::Item: Send,
{
    type Item = S::Item;

    fn open(self, from: SourceStart) -> impl SourceReader<Item = S::Item> {
        StreamReader { stream: Box::pin((self.make)()), skip: from.n }
    }
}

impl<T: Send + 'static> SourceReader for StreamReader<T> {
    type Item = T;

    async fn next(&mut self, limit: usize) -> Result<Vec<SourceItem<T>>, Failure> {
        let mut items = Vec::with_capacity(limit.min(1_000));
        while items.len() < limit
            && let Some(item) = self.stream.next().await
        {
            items.push(SourceItem { key: None, after: None, item });
        }
        Ok(items)
    }

    async fn last(&mut self) -> Result<PreviousItem<T>, Failure> {
        for n in 1..self.skip {
            if self.stream.next().await.is_none() {
                return Ok(PreviousItem::Ended(n - 1));
            }
        }
        Ok(self.stream.next().await.map_or(PreviousItem::Ended(self.skip - 1), PreviousItem::Item))
    }
}

/// Spawns children from the rows of a table of your own, in the database of the store, in the order of a key.
///
/// Rows inserted before the position that was reached are not seen, those after it are. Each row is decoded from a JSON object,
/// of which `T` takes the fields it needs.
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use windlass_model::{Failure, Merge};
/// # use windlass_workflow::{Flow, Rows, Task, TaskCx};
/// /// A row of the table `customers`, and the input of the task.
/// #[derive(Serialize, Deserialize)]
/// struct Remind {
///     id: i64,
///     email: String,
/// }
/// # impl Task for Remind {
/// #     const KIND: &'static str = "remind";
/// #     type Output = ();
/// #     type Error = Failure;
/// #     async fn run(self, _cx: &TaskCx) -> Result<(), Failure> { Ok(()) }
/// # }
///
/// async fn remind_all(flow: &Flow) -> Result<u64, Failure> {
///     let due: Rows<Remind> = Rows::table("customers").filter("due < current_date");
///     let reminders = flow.branch("reminders").spawn_each("customer", due, |customer| customer);
///     Ok(reminders.merge(Merge::settled()).await?.done)
/// }
/// ```
pub struct Rows<T> {
    rows: windlass_store::TableSource,
    item: std::marker::PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned + Send + 'static> Rows<T> {
    /// All rows of a table, or of a view.
    pub fn table(table: impl Into<String>) -> Rows<T> {
        let rows = windlass_store::TableSource { from: table.into(), key: "id".into(), filter: None };
        Rows { rows, item: std::marker::PhantomData }
    }

    /// The rows that a query returns. The query must not have an `order by`.
    pub fn query(sql: impl AsRef<str>) -> Rows<T> {
        Rows::table(format!("({}) as source", sql.as_ref().trim().trim_end_matches(';')))
    }

    /// Reads in the order of this column, which must be unique and not null: by default `id`.
    pub fn key(mut self, column: impl Into<String>) -> Rows<T> {
        self.rows.key = column.into();
        self
    }

    /// Reads only rows that match: the text after `where`.
    pub fn filter(mut self, sql: impl Into<String>) -> Rows<T> {
        self.rows.filter = Some(sql.into());
        self
    }
}

/// Rows that are being read.
pub(super) struct RowsReader<T> {
    rows: windlass_store::TableSource,
    after: Option<String>,
    item: std::marker::PhantomData<fn() -> T>,
}

tokio::task_local! {
    /// The store that rows are read from.
    pub(crate) static STORE: std::sync::Arc<dyn Store>;
}

impl<T: DeserializeOwned + Send + 'static> Source for Rows<T> {
    type Item = T;

    fn open(self, from: SourceStart) -> impl SourceReader<Item = T> {
        RowsReader { rows: self.rows, after: from.after, item: std::marker::PhantomData }
    }
}

impl<T: DeserializeOwned + Send + 'static> SourceReader for RowsReader<T> {
    type Item = T;

    async fn next(&mut self, limit: usize) -> Result<Vec<SourceItem<T>>, Failure> {
        if has_order_by(&self.rows) {
            let text = "the rows of a branch are read in the order of their key, and the query has an order of its own; leave \
                        out its `order by`, and name the column with `.key(…)`";
            return Err(Failure::stop(text).class(class::REFUSED));
        }
        let store = STORE.with(std::sync::Arc::clone);
        let after = self.after.clone();
        let inspect = store.inspect();
        let rows = crate::store_retry::retry_unavailable!(async {
            match inspect.source_rows(&self.rows, after.as_deref(), limit).await {
                Err(error @ Error::Unavailable(_)) => Err(error),
                answer => Ok(answer),
            }
        })?
        .map_err(|error| Failure::stop(error).class(class::REFUSED))?;
        self.after = rows.last().map(|rows| rows.after.clone()).or(after);
        let item = |row: SourceRow| {
            let item = serde_json::from_str(&row.row).map_err(|error| {
                let text = format!(
                    "the row with the key {} does not decode as {} ({error})",
                    row.key,
                    std::any::type_name::<T>()
                );
                Failure::stop(text).class(class::UNDECODABLE)
            })?;
            Ok(SourceItem { key: Some(row.key), after: Some(row.after), item })
        };
        rows.into_iter().map(item).collect()
    }

    async fn last(&mut self) -> Result<PreviousItem<T>, Failure> {
        Ok(PreviousItem::Keyed)
    }
}

/// Whether a query has an `order by` outside of all parentheses but those that `Rows::query` adds.
fn has_order_by(rows: &windlass_store::TableSource) -> bool {
    let text = rows.from.to_ascii_lowercase();
    let (mut depth, mut outer) = (0, String::new());
    for character in text.chars() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ if depth <= 1 => outer.push(character),
            _ => {}
        }
    }
    let words: Vec<&str> = outer.split_whitespace().collect();
    words.windows(2).any(|pair| pair == ["order", "by"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_by_outside_of_parentheses_is_found() {
        let of = |sql: &str| has_order_by(&Rows::<u8>::query(sql).rows);
        assert!(of("select id from orders ORDER\n BY total"));
        assert!(!of("select id, rank() over (order by total) from orders"));
        assert!(!of("select id from orders;"));
    }
}
