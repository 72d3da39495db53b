//! One attempt to process an item: reserve a call, send the request, interpret the response.

use std::collections::BTreeMap;
use std::time::Duration;

use hob_expression::Escape;
use hob_service::config::{Mask, SecretDenied, SecretName};
use hob_trace::{SpanKind, SpanRecord, attribute};
use http::{Method, Request, StatusCode, header};
use http_body_util::Full;
use hyper::body::Bytes;
use serde_json::{Map, Value};
use tokio::time::Instant;
use url::Url;

use crate::plan::retry::{FailureClass, RetryDecision};
use crate::plan::secrets::RequestSecrets;
use crate::plan::template::{Template, TemplateError, TemplateValues};
use crate::plan::{PAGES_STEP, Plan, Source, Step};
use crate::quota::{MAX_QUOTA_WAIT, NewReservation, QuotaFeedback, Reservation, ReserveDecision, millis};
use crate::run::client::{AttemptFailure, HttpResponse};
use crate::run::driver::Driver;
use crate::run::extract::{self, Extracted};
use crate::run::held_claims::HeldClaim;
use crate::run::host_permits::HostPermit;
use crate::run::item::{self, AttemptOutcome, Item, ResultVersion, StoredResult};

/// An older reservation is released, since its call might end after its deadline.
const MAX_RESERVATION_AGE: Duration = Duration::from_secs(5);
/// Wait after an error of the quota.
const QUOTA_RETRY: Duration = Duration::from_millis(500);

/// Maximum characters of a response in an error.
const EXCERPT: usize = 200;

/// The result of an attempt.
pub(crate) struct AttemptResult {
    pub(crate) status: u16,
    pub(crate) calls: u32,
    pub(crate) outcome: AttemptOutcome,
}

/// A call that may be made now.
struct Admission {
    reservation: Reservation,
    reserved: Instant,
    /// Held until the response.
    _permit: HostPermit,
}

/// A request that is ready to send.
struct PreparedRequest {
    request: Request<Full<Bytes>>,
    sent: SentRequest,
}

/// The templates of the request for an item.
#[derive(Clone, Copy)]
pub(super) struct RequestTemplates<'a> {
    /// `None` for a page of a listing: its key is its URL.
    url: Option<&'a Template>,
    pub(super) headers: &'a BTreeMap<String, Template>,
    pub(super) body: Option<&'a Template>,
    is_post: bool,
}

impl<'a> RequestTemplates<'a> {
    /// The request of a step, or without a step that of a page.
    pub(super) fn of(plan: &'a Plan, step: Option<&'a Step>) -> Result<Self, &'static str> {
        match (step, &plan.source) {
            (Some(step), _) => Ok(Self {
                url: step.get.as_ref().or(step.post.as_ref()),
                headers: &step.headers,
                body: step.body.as_ref(),
                is_post: step.post.is_some(),
            }),
            (None, Source::Pages { pages, .. }) => {
                Ok(Self { url: None, headers: &pages.headers, body: None, is_post: false })
            }
            (None, _) => Err("the plan has no listing"),
        }
    }

    pub(super) fn method(&self) -> Method {
        if self.is_post { Method::POST } else { Method::GET }
    }

    pub(super) fn url(&self, values: &TemplateValues<'_>) -> Result<String, TemplateError> {
        match self.url {
            Some(url) => url.render(values, Escape::Url),
            None => Ok(values.key.to_owned()),
        }
    }
}

/// What is needed to interpret the response.
struct SentRequest {
    url: Url,
    /// The result to reuse if the API answers 304.
    stored: Option<StoredResult>,
    /// Masks the secrets of the request in errors.
    mask: Mask,
}

impl AttemptResult {
    fn without_call(outcome: AttemptOutcome) -> Self {
        Self { status: 0, calls: 0, outcome }
    }
}

impl Driver {
    /// Makes one attempt at an item.
    pub(crate) async fn attempt(&self, claim: &HeldClaim, item: &Item) -> AttemptResult {
        let step = self.plan.steps.get(&item.step);
        if item.unchanged
            && let (Some(step), Ok(Some(stored))) = (step, self.stored(item).await)
        {
            return AttemptResult::without_call(stored.reuse(step));
        }
        let makes_call =
            item.step == PAGES_STEP || step.is_some_and(|step| step.get.is_some() || step.post.is_some());
        if makes_call {
            return self.call(claim, item, step).await;
        }
        let Some(step) = step else {
            return AttemptResult::without_call(self.failure_outcome(
                item,
                AttemptFailure::parse(format!("the plan has no step {}", item.step)),
            ));
        };
        let document = parse_data(&item.data)
            .map(|data| if data.is_empty() { Value::from(item.key.as_str()) } else { data.into() });
        let found = document.and_then(|document| extract::from_step(step, &item.key, &document));
        AttemptResult::without_call(match found {
            Ok(Extracted { output, follow }) => {
                AttemptOutcome::Done { output, follow, version: self.result_version(item, "") }
            }
            Err(error) => self.failure_outcome(item, AttemptFailure::parse(error)),
        })
    }

    async fn call(&self, claim: &HeldClaim, item: &Item, step: Option<&Step>) -> AttemptResult {
        let PreparedRequest { request, sent } = match self.prepare(item, step).await {
            Ok(prepared) => prepared,
            Err(failure) => return AttemptResult::without_call(self.failure_outcome(item, failure)),
        };
        let host = sent.url.host_str().unwrap_or_default();
        let asked = Instant::now();
        let Some(Admission { reservation, reserved, _permit }) = self.admit(claim, host).await else {
            return AttemptResult::without_call(AttemptOutcome::Released);
        };
        if reserved.elapsed() > MAX_RESERVATION_AGE || claim.dropped.is_cancelled() {
            self.settle(&reservation, 0, QuotaFeedback::default()).await;
            return AttemptResult::without_call(AttemptOutcome::Released);
        }
        let _ = self.shared.views.publish_task_start(&self.run, item).await;
        let waited = asked.elapsed();
        let max_bytes = self.plan.http.max_body_kib as usize * 1024;
        let mut span = self.shared.context.tracer.span(SpanKind::Client, None);
        span.describe(|record| self.describe_call(record, item, &request, &sent, waited));
        let result = self.shared.http.fetch(request, self.plan.http.timeout.get(), max_bytes).await;
        span.describe(|record| match &result {
            Ok(response) => record.set_received(response.status.as_u16()),
            Err(failure) => record.fail(failure.class.as_str(), sent.mask.apply(&failure.error)),
        });
        drop(span);
        let feedback = match &result {
            Ok(response) => self.read_feedback(response).await,
            Err(_) => QuotaFeedback::default(),
        };
        self.settle(&reservation, 1, feedback).await;
        let _ = self.shared.views.delete_task_start(&self.run, item).await;
        let status = result.as_ref().map_or(0, |response| response.status.as_u16());
        crate::metrics::called(&self.plan.quota, status);
        let outcome = result.and_then(|response| self.interpret(item, step, &sent, &response));
        let outcome = outcome.unwrap_or_else(|failure| match self.restart_listing(item, &sent.url, status) {
            Some(begin) => AttemptOutcome::Done { output: None, follow: vec![begin], version: None },
            None => {
                let error = sent.mask.apply(&failure.error).into_owned();
                self.failure_outcome(item, AttemptFailure { error, ..failure })
            }
        });
        AttemptResult { status, calls: 1, outcome }
    }

    /// Describes a call. The API does not receive the trace context: it belongs to others.
    fn describe_call(
        &self,
        record: &mut SpanRecord,
        item: &Item,
        request: &Request<Full<Bytes>>,
        sent: &SentRequest,
        waited: Duration,
    ) {
        record.set_name(format!("call {}", self.plan.name));
        record.set(attribute::HTTP_REQUEST_METHOD, request.method().as_str());
        record.set_server(sent.url.host_str().unwrap_or_default(), sent.url.port_or_known_default());
        record.set(attribute::PIPELINE_NAME, self.plan.name.as_str());
        record.set(attribute::PIPELINE_RUN, self.run.to_string());
        record.set(attribute::PIPELINE_STEP, item.step.as_str());
        record.set(attribute::PIPELINE_ITEM, sent.mask.apply(&item.key).into_owned());
        record.set(attribute::PIPELINE_ATTEMPT, item.attempts);
        record.set(attribute::QUOTA_NAME, self.plan.quota.to_string());
        record.set(attribute::QUOTA_WAIT_MS, millis(waited));
    }

    /// Waits for a permit of the host and a reservation of the quota; `None` if the run stops first, or the lease on the
    /// item expires. One item per host waits at a time. No permit is held or kept free while the quota has no calls, so
    /// that other runs can use it.
    async fn admit(&self, claim: &HeldClaim, host: &str) -> Option<Admission> {
        let permits = self.shared.host_permits(host, self.plan.http.per_host);
        let demand = permits.demand(&self.run, self.plan.weight);
        let front = self.host_gate(host);
        let _front = unless_dropped(claim, front.lock()).await?;
        let hold = self.plan.http.timeout.get() + MAX_RESERVATION_AGE + MAX_RESERVATION_AGE;
        let (run, weight) = (self.run.to_string(), self.plan.weight);
        let new = NewReservation { id: NewReservation::random_id(), calls: 1, run, weight, hold };
        loop {
            let ask_at = *unless_dropped(claim, self.quota_gate.lock()).await?;
            if ask_at > Instant::now() {
                demand.pause();
                unless_dropped(claim, tokio::time::sleep_until(ask_at)).await?;
            }
            let permit = unless_dropped(claim, demand.acquire()).await?;
            let mut ask_at = unless_dropped(claim, self.quota_gate.lock()).await?;
            let reserved = Instant::now();
            if *ask_at > reserved {
                continue;
            }
            if !self.holds(claim).await {
                return None;
            }
            let wait = match self.shared.quotas.reserve(&self.plan.quota, &new).await {
                Ok(ReserveDecision::Granted(reservation)) => {
                    demand.count_call();
                    return Some(Admission { reservation, reserved, _permit: permit });
                }
                Ok(ReserveDecision::Wait { after, .. }) => after.min(MAX_QUOTA_WAIT),
                Err(error) => {
                    // Fail closed: the usage of the quota is unknown.
                    if !error.is_reported() {
                        tracing::warn!(run = %self.run, quota = %self.plan.quota, %error, "quota is unavailable");
                    }
                    QUOTA_RETRY
                }
            };
            *ask_at = Instant::now() + wait;
        }
    }

    async fn settle(&self, reservation: &Reservation, made: u32, feedback: QuotaFeedback) {
        if feedback.blocked_for.is_some() {
            tracing::warn!(quota = %reservation.quota, wait_ms = feedback.blocked_for.map(millis), "API allows no calls");
        }
        if let Err(error) = self.shared.quotas.settle(reservation, made, feedback).await
            && !error.is_reported()
        {
            // The call counts as ended at its deadline, which is too late but safe.
            tracing::warn!(quota = %reservation.quota, %error, "failed to settle a quota reservation");
        }
    }

    async fn read_feedback(&self, response: &HttpResponse) -> QuotaFeedback {
        match self.shared.quotas.definition(&self.plan.quota).await {
            Ok(quota) => QuotaFeedback::from_response(
                response.status,
                &response.headers,
                &quota.limits,
                jiff::Timestamp::now(),
            ),
            Err(_) => QuotaFeedback::default(),
        }
    }

    async fn prepare(&self, item: &Item, step: Option<&Step>) -> Result<PreparedRequest, AttemptFailure> {
        let data = parse_data(&item.data).map_err(AttemptFailure::parse)?;
        let templates = RequestTemplates::of(&self.plan, step).map_err(AttemptFailure::parse)?;
        let RequestTemplates { headers, body, .. } = templates;
        let render_url = |values: &TemplateValues<'_>| templates.url(values);
        let no_secrets = |name: &SecretName| Err(SecretDenied::NotListed(name.clone()));
        let values = TemplateValues { key: &item.key, data: &data, secrets: &no_secrets };
        let names: Vec<&SecretName> =
            headers.values().chain(templates.url).chain(body).flat_map(Template::secrets).collect();
        let request_secrets =
            RequestSecrets::read(&self.shared.context.secrets, &names, render_url, headers, &values);
        let request_secrets = request_secrets.map_err(AttemptFailure::parse)?;
        let secrets = |name: &SecretName| request_secrets.get(name);
        let values = TemplateValues { secrets: &secrets, ..values };
        let url = render_url(&values).map_err(AttemptFailure::parse)?;
        let url = Url::parse(&url).map_err(|error| AttemptFailure::parse(format!("invalid URL: {error}")))?;
        let mut target = url.clone();
        target.set_fragment(None);
        let mut request = Request::builder().method(templates.method()).uri(target.as_str());
        request = request.header(header::USER_AGENT, concat!("hob/", env!("CARGO_PKG_VERSION")));
        request = request.header(header::ACCEPT, "application/json");
        for (name, value) in headers {
            request =
                request.header(name, value.render(&values, Escape::Header).map_err(AttemptFailure::parse)?);
        }
        let mut stored = None;
        if step.is_some_and(|step| step.conditional && step.get.is_some()) {
            // Without a stored result the request is unconditional.
            stored = self.stored(item).await.unwrap_or_default().filter(|stored| !stored.etag.is_empty());
        }
        if let Some(stored) = &stored {
            request = request.header(header::IF_NONE_MATCH, &stored.etag);
        }
        let body = body.map(|body| body.render(&values, Escape::Json));
        let body = body.transpose().map_err(AttemptFailure::parse)?.unwrap_or_default();
        if templates.method() == Method::POST {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request
            .body(Full::from(body))
            .map_err(|error| AttemptFailure::parse(format!("invalid request: {error}")))?;
        Ok(PreparedRequest { request, sent: SentRequest { url, stored, mask: request_secrets.mask() } })
    }

    fn interpret(
        &self,
        item: &Item,
        step: Option<&Step>,
        sent: &SentRequest,
        response: &HttpResponse,
    ) -> Result<AttemptOutcome, AttemptFailure> {
        let excerpt = || -> String {
            sent.mask.beginning(&response.body, EXCERPT).chars().filter(|c| !c.is_control()).collect()
        };
        if response.status == StatusCode::NOT_MODIFIED
            && let (Some(step), Some(stored)) = (step, &sent.stored)
        {
            return Ok(stored.clone().reuse(step));
        }
        if let Some(class) = class_of(response.status) {
            return Err(AttemptFailure { class, error: format!("{}: {}", response.status, excerpt()) });
        }
        let document: Value = serde_json::from_slice(&response.body).map_err(|error| {
            AttemptFailure::parse(format!("response is not JSON ({error}): {}", excerpt()))
        })?;
        let found = match (step, &self.plan.source) {
            (Some(step), _) => extract::from_step(step, &item.key, &document),
            (None, Source::Pages { step, pages }) => extract::from_page(pages, step, &sent.url, &document),
            (None, _) => Err("the plan has no listing".to_owned()),
        };
        let Extracted { output, follow } = found.map_err(AttemptFailure::parse)?;
        let etag = response.headers.get(header::ETAG).and_then(|etag| etag.to_str().ok());
        Ok(AttemptOutcome::Done {
            output,
            follow,
            version: self.result_version(item, etag.unwrap_or_default()),
        })
    }

    /// The stored result of an item from an earlier run.
    async fn stored(&self, item: &Item) -> Result<Option<StoredResult>, crate::Error> {
        let Some(step_hash) = self.stored_steps.get(&item.step) else { return Ok(None) };
        StoredResult::find(&self.shared.context.database, self.plan.name.as_str(), item, step_hash).await
    }

    /// The version under which a result is stored; `None` if the step's results are not stored.
    fn result_version(&self, item: &Item, etag: &str) -> Option<ResultVersion> {
        let step_hash = self.stored_steps.get(&item.step)?;
        Some(ResultVersion { step_hash: step_hash.clone(), etag: etag.to_owned() })
    }

    /// The first page of the listing, if the API does not know the cursor any more.
    fn restart_listing(&self, item: &Item, url: &Url, status: u16) -> Option<item::NewItem> {
        let Source::Pages { pages, .. } = &self.plan.source else { return None };
        let unknown = item.step == PAGES_STEP && matches!(status, 400 | 404 | 410);
        let begin = unknown.then(|| extract::restart_listing(pages.url.fixed()?, url)).flatten()?;
        tracing::warn!(run = %self.run, status, "API rejected the page cursor, restarting the listing");
        Some(begin)
    }

    /// The outcome of a failure: a retry or a dead letter.
    fn failure_outcome(&self, item: &Item, failure: AttemptFailure) -> AttemptOutcome {
        let AttemptFailure { class, error } = failure;
        let error: String = error.chars().filter(|c| *c != '\0').take(500).collect();
        match self.plan.retry.decide(class, item.attempts, rand::random()) {
            RetryDecision::Retry { after } => AttemptOutcome::Retry { class, error, after },
            RetryDecision::Quarantine => AttemptOutcome::Quarantined { class, error },
        }
    }
}

fn class_of(status: StatusCode) -> Option<FailureClass> {
    match status {
        StatusCode::TOO_MANY_REQUESTS => Some(FailureClass::Throttled),
        StatusCode::REQUEST_TIMEOUT => Some(FailureClass::Server),
        status if status.is_success() => None,
        status if status.is_server_error() => Some(FailureClass::Server),
        // Redirects, too: following one would be a call without a reservation.
        _ => Some(FailureClass::Client),
    }
}

/// The result of a future; `None` if the run stops or the claim is dropped first.
async fn unless_dropped<T>(claim: &HeldClaim, future: impl Future<Output = T>) -> Option<T> {
    claim.dropped.run_until_cancelled(future).await
}

/// The data of an item.
pub(super) fn parse_data(text: &str) -> Result<Map<String, Value>, String> {
    if text.is_empty() {
        return Ok(Map::new());
    }
    serde_json::from_str(text).map_err(|error| format!("invalid data of the item: {error}"))
}
