//! Statements of a caller's transaction on PostgreSQL: by the driver itself, or through a [`crate::Tx`].

use std::{
    collections::HashMap,
    ops::Deref,
    sync::{Arc, Mutex},
};

use tokio_postgres::{Client, Statement, types::ToSql};
use windlass_model::{Failure, failure::class};

use super::caller_types::{Param, decode};
use crate::tx::{Answer, Row, Statements, Value};

/// A transaction on the store's PostgreSQL database, for statements by the driver itself: it is a [`tokio_postgres::Client`].
///
/// The engine commits it when the closure that got it returns `Ok`, and rolls it back otherwise. If it still exists then, because
/// a task that the closure has spawned owns it, the connection is closed, which rolls back too.
pub struct PostgresTx {
    client: Arc<Client>,
}

impl PostgresTx {
    pub(super) fn new(client: &Arc<Client>) -> PostgresTx {
        PostgresTx { client: Arc::clone(client) }
    }
}

impl Deref for PostgresTx {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl std::fmt::Debug for PostgresTx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresTx").finish_non_exhaustive()
    }
}

/// How many statements a transaction keeps prepared: enough for every loop, few enough for the server's memory.
const MAX_PREPARED: usize = 64;

/// The statements of a [`crate::Tx`].
pub(super) struct CallerTx {
    client: PostgresTx,
    prepared: Mutex<HashMap<String, Statement>>,
}

impl CallerTx {
    pub(super) fn new(client: PostgresTx) -> CallerTx {
        CallerTx { client, prepared: Mutex::default() }
    }

    /// Prepares a statement, and encodes its parameters as the server expects them.
    async fn prepare(&self, sql: &str, params: &[Value]) -> Result<(Statement, Vec<Param>), Failure> {
        let known = self.prepared.lock().unwrap_or_else(|e| e.into_inner()).get(sql).cloned();
        let statement = match known {
            Some(statement) => statement,
            None => {
                let statement = self.client.prepare(sql).await?;
                let mut prepared = self.prepared.lock().unwrap_or_else(|e| e.into_inner());
                if prepared.len() >= MAX_PREPARED {
                    prepared.clear();
                }
                prepared.insert(sql.to_owned(), statement.clone());
                statement
            }
        };
        let types = statement.params();
        if types.len() != params.len() {
            let text =
                format!("the statement has {} parameters, and {} were given", types.len(), params.len());
            return Err(Failure::stop(text).class(class::DATA));
        }
        let encode = |(number, (value, ty)): (usize, (&Value, _))| {
            Param::new(value, ty).map_err(|why| {
                Failure::stop(format!("the parameter ${number} does not fit: {why}")).class(class::DATA)
            })
        };
        let params = (1..).zip(params.iter().zip(types)).map(encode).collect::<Result<_, _>>()?;
        Ok((statement, params))
    }
}

impl Statements for CallerTx {
    fn execute<'a>(&'a self, sql: &'a str, params: Vec<Value>) -> Answer<'a, u64> {
        Box::pin(async move {
            let (statement, params) = self.prepare(sql, &params).await?;
            Ok(self.client.execute_raw(&statement, &params).await?)
        })
    }

    fn query<'a>(&'a self, sql: &'a str, params: Vec<Value>) -> Answer<'a, Vec<Row>> {
        Box::pin(async move {
            let (statement, params) = self.prepare(sql, &params).await?;
            let columns: Arc<[String]> =
                statement.columns().iter().map(|column| column.name().to_owned()).collect();
            let params: Vec<&(dyn ToSql + Sync)> = params.iter().map(|param| param as _).collect();
            let rows = self.client.query(&statement, &params).await?;
            let read = |row: &tokio_postgres::Row| {
                let value = |(position, column): (usize, &tokio_postgres::Column)| {
                    decode(row.try_get(position).map_err(|error| error.to_string())?, column.type_())
                };
                Row::new(&columns, row.columns().iter().enumerate().map(value).collect())
            };
            Ok(rows.iter().map(read).collect())
        })
    }
}
