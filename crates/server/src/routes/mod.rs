//! The routes: one table from which the router and the API description are made.

mod actions;
mod admin;
mod alerts;
mod bulk;
mod diagrams;
mod events;
mod filter;
mod jobs;
mod names;
mod probes;
mod queues;
mod rules;
mod schedules;
pub(crate) mod submit;
mod throughput;
mod tokens;
mod users;
mod worker;

use std::{future::Future, pin::Pin, sync::Arc};

use axum::http::{Method, StatusCode};
use serde_json::Value;
use windlass::{Retry, model::Permission};
use windlass_remote::protocol::schema::Schemas;

use crate::{
    answers::Answered,
    call::Call,
    error::Error,
    input::{Described, Field, Fields, input, object_schema},
    reply::Reply,
};

/// What a handler returns.
pub(crate) type Answer = Result<Reply, Error>;
/// Makes a schema, and the named ones that it refers to.
pub(crate) type Describe = fn(&mut Schemas) -> Value;
type Handler = Arc<dyn Fn(Call) -> Pin<Box<dyn Future<Output = Answer> + Send>> + Send + Sync>;

/// Who may use a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// Everybody, by any name: load balancers probe servers by their addresses. It tells nothing about jobs.
    Probe,
    /// Everybody. It tells nothing about jobs.
    Open,
    /// Whoever has this permission.
    Needs(Permission),
    /// A page, for people who have this permission: a login by cookie counts, and errors are pages.
    Page(Permission),
    /// A page for everybody. It tells nothing about jobs.
    OpenPage,
}

impl Access {
    /// What the sender must be allowed; `None` if nobody needs to log in.
    pub(crate) fn permission(self) -> Option<Permission> {
        match self {
            Access::Needs(permission) | Access::Page(permission) => Some(permission),
            Access::Probe | Access::Open | Access::OpenPage => None,
        }
    }

    /// Whether people see the answer in a browser.
    pub(crate) fn is_page(self) -> bool {
        matches!(self, Access::Page(_) | Access::OpenPage)
    }
}

/// One method of one path.
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    /// The name of the operation in the API description.
    pub(crate) name: &'static str,
    /// What it does, for the API description.
    pub(crate) summary: &'static str,
    pub(crate) access: Access,
    pub(crate) query: Vec<Field>,
    /// The schema of the body, and whether there must be one.
    pub(crate) body: Option<(Describe, bool)>,
    /// What the answer is, for the API description.
    pub(crate) answer: &'static str,
    /// The schema of the answer, if it is JSON.
    pub(crate) answer_schema: Option<Describe>,
    /// Answers with other statuses than 200: what they are, and their schemas.
    pub(crate) other_answers: Vec<(StatusCode, &'static str, Describe)>,
    /// Whether it reports its progress to clients that accept events.
    pub(crate) progresses: bool,
    /// Whether the answer has an ETag.
    pub(crate) tagged: bool,
    pub(crate) handler: Handler,
}

impl Route {
    pub(crate) fn new<F>(
        method: Method,
        path: &'static str,
        access: Access,
        name: &'static str,
        summary: &'static str,
        handler: impl Fn(Call) -> F + Send + Sync + 'static,
    ) -> Route
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        let tagged = method == Method::GET && access != Access::Probe;
        Route {
            method,
            path,
            name,
            summary,
            access,
            query: Vec::new(),
            body: None,
            answer: "The outcome",
            answer_schema: None,
            other_answers: Vec::new(),
            progresses: false,
            tagged,
            handler: Arc::new(move |call| Box::pin(handler(call))),
        }
    }

    /// A page, or a form that one posts. It is not part of the API and its description.
    pub(crate) fn page<F>(
        method: Method,
        path: &'static str,
        access: Access,
        handler: impl Fn(Call) -> F + Send + Sync + 'static,
    ) -> Route
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        Route::new(method, path, access, "page", "A page", handler).untagged()
    }

    /// Adds the parameters of its query.
    fn query<T: Fields>(mut self) -> Route {
        self.query = T::fields();
        self
    }

    /// Adds its body, which must be there.
    fn body<T: Described>(mut self) -> Route {
        self.body = Some((|_| T::schema(), true));
        self
    }

    /// Adds its body, which may be left out.
    fn optional_body<T: Fields>(mut self) -> Route {
        self.body = Some((|_| object_schema(T::fields()), false));
        self
    }

    /// Says what the answer is.
    fn answers(mut self, answer: &'static str) -> Route {
        self.answer = answer;
        self
    }

    /// Adds the schema of the answer.
    fn returns<T: Answered>(mut self) -> Route {
        self.answer_schema = Some(T::schema);
        self
    }

    /// Adds an answer with another status.
    fn also_returns<T: Answered>(mut self, status: StatusCode, answer: &'static str) -> Route {
        self.other_answers.push((status, answer, T::schema));
        self
    }

    /// It is an operation in batches, which reports its progress to clients that accept events, and limits its own time.
    fn progresses(mut self) -> Route {
        self.progresses = true;
        self
    }

    /// The answer has no ETag.
    fn untagged(mut self) -> Route {
        self.tagged = false;
        self
    }
}

/// The routes of the API.
pub(crate) fn routes() -> Vec<Route> {
    let parts = [
        probes::routes(),
        submit::routes(),
        names::routes(),
        jobs::routes(),
        diagrams::routes(),
        actions::routes(),
        bulk::routes(),
        queues::routes(),
        throughput::routes(),
        rules::routes(),
        schedules::routes(),
        alerts::routes(),
        admin::routes(),
        tokens::routes(),
        users::routes(),
        events::routes(),
        worker::routes(),
    ];
    parts.into_iter().flatten().collect()
}

const READ: Access = Access::Needs(Permission::Read);
const ACT: Access = Access::Needs(Permission::Act);
const WORK: Access = Access::Needs(Permission::Work);
const ADMINISTER: Access = Access::Needs(Permission::Administer);

input! {
    /// Why something is done.
    NoteInput {
        /// The reason, for the audit log.
        note: Option<String>,
    }
}

/// The length of a page: what is asked for, within bounds.
fn page_limit(limit: Option<u32>) -> Result<usize, Error> {
    limit_up_to(limit, 1_000)
}

/// The length of a list that has no pages.
fn limit_up_to(limit: Option<u32>, most: u32) -> Result<usize, Error> {
    const DEFAULT: u32 = 50;
    match limit.unwrap_or(DEFAULT) {
        limit if (1..=most).contains(&limit) => Ok(limit as usize),
        limit => {
            Err(Error::invalid(format!("the limit {limit} is not from 1 to {most}"), "ask for several pages"))
        }
    }
}

/// The retry policy of this number of attempts.
fn attempts(attempts: Option<u32>) -> Result<Option<Retry>, Error> {
    match attempts {
        Some(0) => Err(Error::invalid(
            "a job has at least one attempt, and not 0",
            "leave `attempts` out, or set 1 or more",
        )),
        attempts => Ok(attempts.map(Retry::times)),
    }
}
