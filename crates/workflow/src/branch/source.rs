//! Where the children of a branch come from.
//!
//! A source is read in chunks. With each chunk's children the place after it is committed, so that a crash costs one chunk
//! at most, and the source of a million items is never in memory. A source that has no keys of its own (an iterator, a
//! stream) is skipped forward to that place: it must enumerate alike again.

use std::{future::Future, pin::Pin};

use futures_util::{Stream, StreamExt};
use serde::de::DeserializeOwned;
use windlass_model::{Failure, failure::class};
use windlass_store::{Error, SourceRow, Store};

/// Where the children of a branch come from: anything that can be iterated, [`stream`]s, and [`Rows`] of your own tables.
pub trait Source: Send + 'static {
    /// What it yields.
    type Item: Send;

    /// Begins to read it, after what was read before.
    #[doc(hidden)]
    fn open(self, from: SourceStart) -> impl SourceReader<Item = Self::Item>;
}

/// Where reading goes on.
#[doc(hidden)]
#[derive(Clone, Debug, Default)]
pub struct SourceStart {
    /// How many items were read.
    pub n: u64,
    /// The key of the last one, as the store reads it.
    pub after: Option<String>,
}

/// A source that is being read.
#[doc(hidden)]
pub trait SourceReader: Send + 'static {
    /// What it yields.
    type Item: Send;

    /// The next items, at most so many; fewer only at the end.
    fn next(
        &mut self,
        most: usize,
    ) -> impl Future<Output = Result<Vec<SourceItem<Self::Item>>, Failure>> + Send;

    /// The item before the first of the next ones, if there is one and it can be had again.
    fn last(&mut self) -> impl Future<Output = Result<PreviousItem<Self::Item>, Failure>> + Send;
}

/// An item of a source.
#[doc(hidden)]
pub struct SourceItem<T> {
    /// What people know it by; `None` for its number.
    pub key: Option<String>,
    /// Its key, as the store reads it.
    pub after: Option<String>,
    /// The item.
    pub item: T,
}

/// What came before the place where reading goes on.
#[doc(hidden)]
pub enum PreviousItem<T> {
    /// It is not read again: its key was kept.
    Keyed,
    /// The item.
    Item(T),
    /// The source ended before it, after so many items.
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

    async fn next(&mut self, most: usize) -> Result<Vec<SourceItem<I::Item>>, Failure> {
        Ok(self.iter.by_ref().take(most).map(|item| SourceItem { key: None, after: None, item }).collect())
    }

    async fn last(&mut self) -> Result<PreviousItem<I::Item>, Failure> {
        // Counted as well as skipped: of a source that has become shorter it is told how long it is now.
        let mut n = 0;
        let skip = usize::try_from(self.skip).unwrap_or(usize::MAX);
        let last = self.iter.by_ref().take(skip).inspect(|_| n += 1).last();
        Ok(match last {
            Some(item) if n == self.skip => PreviousItem::Item(item),
            _ => PreviousItem::Ended(n),
        })
    }
}

/// A stream that children are spawned from; see [`stream`].
pub struct StreamSource<F> {
    make: F,
}

/// Children from an async stream. It is made anew when the workflow is taken up again before the branch is sealed, and must
/// enumerate alike.
pub fn stream<F, S>(make: F) -> StreamSource<F>
where
    F: FnOnce() -> S + Send + 'static,
    S: Stream + Send + 'static,
    S::Item: Send,
{
    StreamSource { make }
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

    async fn next(&mut self, most: usize) -> Result<Vec<SourceItem<T>>, Failure> {
        let mut items = Vec::with_capacity(most.min(1_000));
        while items.len() < most
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

/// Children from the rows of a table of your own, in the database that the store is in, in the order of a key.
///
/// Rows that are added behind the place that was reached are not seen, those before it are. Each row is read as a JSON
/// object, of which `T` takes what it needs.
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

    /// The rows that a query answers. It has no order of its own.
    pub fn query(sql: impl AsRef<str>) -> Rows<T> {
        Rows::table(format!("({}) as source", sql.as_ref().trim().trim_end_matches(';')))
    }

    /// In the order of this column, which is unique and never null: `id`, unless you say otherwise.
    pub fn key(mut self, column: impl Into<String>) -> Rows<T> {
        self.rows.key = column.into();
        self
    }

    /// Only rows for which this holds: what stands after `where`.
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

    async fn next(&mut self, most: usize) -> Result<Vec<SourceItem<T>>, Failure> {
        if ordered(&self.rows) {
            let text = "the rows of a branch are read in the order of their key, and the query has an order of its own; leave \
                        out its `order by`, and name the column with `.key(…)`";
            return Err(Failure::stop(text).class(class::REFUSED));
        }
        let store = STORE.with(std::sync::Arc::clone);
        let after = self.after.clone();
        let inspect = store.inspect();
        let picked = crate::store_retry::retry_unavailable!(async {
            match inspect.source_rows(&self.rows, after.as_deref(), most).await {
                Err(error @ Error::Unavailable(_)) => Err(error),
                answer => Ok(answer),
            }
        })?
        .map_err(|error| Failure::stop(error).class(class::REFUSED))?;
        self.after = picked.last().map(|picked| picked.after.clone()).or(after);
        let one = |picked: SourceRow| {
            let item = serde_json::from_str(&picked.row).map_err(|error| {
                let text = format!(
                    "the row with the key {} does not decode as {} ({error})",
                    picked.key,
                    std::any::type_name::<T>()
                );
                Failure::stop(text).class(class::UNDECODABLE)
            })?;
            Ok(SourceItem { key: Some(picked.key), after: Some(picked.after), item })
        };
        picked.into_iter().map(one).collect()
    }

    async fn last(&mut self) -> Result<PreviousItem<T>, Failure> {
        Ok(PreviousItem::Keyed)
    }
}

/// Whether a query has an order of its own, outside of all parentheses but its own.
fn ordered(rows: &windlass_store::TableSource) -> bool {
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
    fn an_order_of_its_own_is_seen() {
        let of = |sql: &str| ordered(&Rows::<u8>::query(sql).rows);
        assert!(of("select id from orders ORDER\n BY total"));
        assert!(!of("select id, rank() over (order by total) from orders"));
        assert!(!of("select id from orders;"));
    }
}
