//! Changes to jobs, queues, limits, serial keys, schedules, tokens and users, by a server.

use std::time::Duration;

use serde_json::{Value, json};
use windlass::{
    ControlOutcome, JobId, Time,
    model::Role,
    operate::{Acted, ForkPoint, JobAction, TokenRequest},
    store::{AdminAction, Token, User},
};
use windlass_http::{Method, Request};

use super::{Failure, Reply, Server, read::body};
use crate::{
    args::Actor,
    client::{NewSchedule, SentSignal, UserAction},
};

impl Server {
    pub(crate) async fn act(
        &self,
        jobs: &[JobId],
        action: JobAction,
        actor: &Actor,
    ) -> anyhow::Result<Vec<Acted>> {
        let note = actor.note_for_server()?.map(Value::from);
        let mut acted = Vec::with_capacity(jobs.len());
        for id in jobs {
            let post = |rest: &str| Request::post(Server::job_path(*id, rest));
            let (request, extra) = match action {
                JobAction::Cancel { grace } => (post("/cancel"), Some(("grace", json!(Server::span(grace))))),
                JobAction::Pause => (post("/pause"), None),
                JobAction::Resume => (post("/resume"), None),
                JobAction::Retry => (post("/retry"), None),
                JobAction::Priority(priority) => (post("/priority"), Some(("priority", json!(priority)))),
                JobAction::DropSignal(number) => {
                    (Request::new(Method::DELETE, Server::job_path(*id, &format!("/inbox/{number}"))), None)
                }
                JobAction::RestoreSignal(number) => (post(&format!("/inbox/{number}/restore")), None),
            };
            let fields = extra.map(|(name, value)| (name, Some(value))).into_iter();
            let body = body(fields.chain([("note", note.clone())]));
            acted.push(self.acted(*id, request.json(&body)?).await?);
        }
        Ok(acted)
    }

    /// Sends an action on one job.
    async fn acted(&self, id: JobId, request: Request) -> anyhow::Result<Acted> {
        match self.get(request).await {
            Ok(reply) => Ok(reply.value),
            Err(Failure::Refused(refusal)) if refusal.is_no_such_job() => Ok(Acted::unknown(id)),
            Err(Failure::Refused(refusal)) if refusal.is_conflict() => Ok(Acted::refused(id, refusal.text())),
            Err(failure) => Err(failure.into()),
        }
    }

    pub(crate) async fn cancel_tree(
        &self,
        job: JobId,
        grace: Duration,
        actor: &Actor,
    ) -> anyhow::Result<Acted> {
        let note = actor.note_for_server()?;
        let body = json!({ "grace": Server::span(grace), "children": true, "note": note });
        let acted = self.acted(job, Request::post(Server::job_path(job, "/cancel")).json(&body)?).await?;
        Ok(Acted { children: acted.children.or(Some(0)), ..acted })
    }

    pub(crate) async fn fork(
        &self,
        job: JobId,
        point: &ForkPoint,
        key: Option<&str>,
        actor: &Actor,
    ) -> anyhow::Result<JobId> {
        #[derive(serde::Deserialize)]
        struct Answer {
            job: JobId,
        }
        let fields = Server::fork_fields(point);
        let more = [("new_key", key.map(Value::from)), ("note", actor.note_for_server()?.map(Value::from))];
        let body = body(fields.into_iter().chain(more));
        let request = Request::post(Server::job_path(job, "/fork")).json(&body)?;
        Ok(self.get_of_known_job::<Answer>(job, request).await?.value.job)
    }

    /// Where a fork starts.
    pub(super) fn fork_fields(point: &ForkPoint) -> Vec<(&'static str, Option<Value>)> {
        match point {
            ForkPoint::End => Vec::new(),
            ForkPoint::Beginning => vec![("from_beginning", Some(true.into()))],
            ForkPoint::Entry(seq) => vec![("before_entry", Some((*seq).into()))],
            ForkPoint::Call { name, key } => {
                vec![("before", Some(name.clone().into())), ("step_key", key.clone().map(Value::from))]
            }
        }
    }

    pub(crate) async fn administer(
        &self,
        action: &AdminAction,
        actor: &Actor,
    ) -> anyhow::Result<ControlOutcome> {
        let (method, path, fields) = match action {
            AdminAction::PauseQueue(queue) => {
                (Method::POST, Server::path("/v1/queues", queue, "/pause"), vec![])
            }
            AdminAction::ResumeQueue(queue) => {
                (Method::POST, Server::path("/v1/queues", queue, "/resume"), vec![])
            }
            AdminAction::Limit(limit) => {
                let fields = vec![
                    ("rate", Some(limit.rate.into())),
                    ("per", Some(Server::span(limit.per).into())),
                    ("burst", Some(limit.burst.into())),
                ];
                (Method::PUT, Server::path("/v1/limits", &limit.name, ""), fields)
            }
            AdminAction::Lift(name) => (Method::POST, Server::path("/v1/limits", name, "/lift"), vec![]),
            AdminAction::Slots { key, slots } => (
                Method::PUT,
                Server::path("/v1/serial-keys", key, ""),
                vec![("slots", Some((*slots).into()))],
            ),
            AdminAction::DropSchedule(name) => {
                (Method::DELETE, Server::path("/v1/schedules", name, ""), vec![])
            }
            AdminAction::PauseSchedule(name) => {
                (Method::POST, Server::path("/v1/schedules", name, "/pause"), vec![])
            }
            AdminAction::ResumeSchedule(name) => {
                (Method::POST, Server::path("/v1/schedules", name, "/resume"), vec![])
            }
            AdminAction::Trigger { name, id: _ } => {
                (Method::POST, Server::path("/v1/schedules", name, "/trigger"), vec![])
            }
            AdminAction::Schedule(_) => anyhow::bail!("a server sets a schedule from its description"),
        };
        self.administered(method, path, fields, actor).await
    }

    async fn administered(
        &self,
        method: Method,
        path: String,
        fields: Vec<(&'static str, Option<Value>)>,
        actor: &Actor,
    ) -> anyhow::Result<ControlOutcome> {
        let note = actor.note_for_server()?.map(Value::from);
        let body = body(fields.into_iter().chain([("note", note)]));
        match self.get(Request::new(method, path).json(&body)?).await {
            Ok(reply) => Ok(reply.value),
            Err(Failure::Refused(refusal)) if refusal.is_not_found() => Ok(ControlOutcome::Unknown),
            Err(Failure::Refused(refusal)) if refusal.is_conflict() => {
                Ok(ControlOutcome::Refused(refusal.text()))
            }
            Err(failure) => Err(failure.into()),
        }
    }

    pub(crate) async fn set_schedule(
        &self,
        new: &NewSchedule,
        actor: &Actor,
    ) -> anyhow::Result<(ControlOutcome, Time)> {
        let body = body([
            ("calendar", Some(new.calendar.to_string().into())),
            ("kind", Some(new.kind.clone().into())),
            ("version", Some(new.version.into())),
            ("input", Some(new.input.clone())),
            ("queue", new.queue.clone().map(Value::from)),
            ("overlap", Some(new.overlap.to_string().into())),
            ("catch_up", Some(new.catch_up.to_string().into())),
            ("priority", Some(new.priority.into())),
            ("tags", Some(new.tags.clone().into())),
            ("attempts", new.attempts.map(Value::from)),
            ("timeout", new.timeout.map(|timeout| Server::span(timeout).into())),
            ("serial", new.serial.as_ref().map(Server::serial)),
            ("rate", new.rate.as_ref().map(Server::charge)),
            ("any_input", new.is_unchecked.then_some(Value::Bool(true))),
            ("note", actor.note_for_server()?.map(Value::from)),
        ]);
        let request = Request::new(Method::PUT, Server::path("/v1/schedules", &new.name, "")).json(&body)?;
        let Reply { value, now } = self.get(request).await?;
        Ok((value, now))
    }

    pub(crate) async fn create_token(
        &self,
        request: &TokenRequest,
        actor: &Actor,
    ) -> anyhow::Result<(Token, String)> {
        #[derive(serde::Deserialize)]
        struct Answer {
            #[serde(flatten)]
            token: Token,
            text: String,
        }
        let TokenRequest { name, role, scope, expires_in } = request;
        let body = body([
            ("name", Some(name.clone().into())),
            ("role", Some(role.to_string().into())),
            ("kinds", Some(scope.kinds.clone().into())),
            ("queues", Some(scope.queues.clone().into())),
            ("expires_in", expires_in.map(|span| Server::span(span).into())),
            ("note", actor.note_for_server()?.map(Value::from)),
        ]);
        let Answer { token, text } = self.get(Request::post("/v1/tokens").json(&body)?).await?.value;
        Ok((token, text))
    }

    pub(crate) async fn revoke_token(&self, token: &str, actor: &Actor) -> anyhow::Result<ControlOutcome> {
        self.administered(Method::DELETE, Server::path("/v1/tokens", token, ""), vec![], actor).await
    }

    pub(crate) async fn create_user(
        &self,
        name: &str,
        role: Role,
        password: &str,
        actor: &Actor,
    ) -> anyhow::Result<User> {
        let body = body([
            ("name", Some(name.into())),
            ("role", Some(role.to_string().into())),
            ("password", Some(password.into())),
            ("note", actor.note_for_server()?.map(Value::from)),
        ]);
        Ok(self.get(Request::post("/v1/users").json(&body)?).await?.value)
    }

    pub(crate) async fn change_user(
        &self,
        user: &str,
        action: &UserAction,
        actor: &Actor,
    ) -> anyhow::Result<ControlOutcome> {
        let (verb, field) = match action {
            UserAction::SetPassword(password) => ("/password", Some(("password", json!(password)))),
            UserAction::SetRole(role) => ("/role", Some(("role", json!(role)))),
            UserAction::Disable => ("/disable", None),
            UserAction::Enable => ("/enable", None),
            UserAction::EndSessions => ("/log-out", None),
        };
        let fields = field.map(|(name, value)| (name, Some(value))).into_iter().collect();
        self.administered(Method::POST, Server::path("/v1/users", user, verb), fields, actor).await
    }

    pub(crate) async fn mute_alerts(
        &self,
        rule: &str,
        subject: Option<&str>,
        span: Option<Duration>,
        actor: &Actor,
    ) -> anyhow::Result<ControlOutcome> {
        let fields = vec![
            ("rule", Some(rule.into())),
            ("subject", subject.map(Value::from)),
            ("expires_in", span.map(|span| Server::span(span).into())),
        ];
        self.administered(Method::POST, "/v1/alerts/mute".into(), fields, actor).await
    }

    pub(crate) async fn unmute_alerts(
        &self,
        rule: &str,
        subject: Option<&str>,
        actor: &Actor,
    ) -> anyhow::Result<ControlOutcome> {
        let fields = vec![("rule", Some(rule.into())), ("subject", subject.map(Value::from))];
        self.administered(Method::POST, "/v1/alerts/unmute".into(), fields, actor).await
    }

    pub(crate) async fn test_alert(&self, rule: &str, actor: &Actor) -> anyhow::Result<ControlOutcome> {
        let fields = vec![("rule", Some(rule.into()))];
        self.administered(Method::POST, "/v1/alerts/test".into(), fields, actor).await
    }

    pub(crate) async fn signal(
        &self,
        job: JobId,
        name: &str,
        payload: &Value,
        dedup: Option<&str>,
    ) -> anyhow::Result<SentSignal> {
        let path = Server::path(&Server::job_path(job, "/signals"), name, "");
        let request = Request::post(path).json(&json!({ "payload": payload, "dedup": dedup }))?;
        Ok(self.get_of_known_job(job, request).await?.value)
    }
}
