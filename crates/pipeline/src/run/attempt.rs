//! One attempt at one item: the request, the reservation around it, and what comes of the answer.

use std::time::{Duration, Instant};

use hob_service::config::{Mask, SecretName, SecretRefused};
use http::{Request, StatusCode, header};
use http_body_util::Full;
use hyper::body::Bytes;
use serde_json::{Map, Value};
use url::Url;

use crate::plan::retry::{Class, Verdict};
use crate::plan::secrets::Granted;
use crate::plan::template::{Filling, Place, Template};
use crate::plan::{PAGES, Source, Step};
use crate::quota::{Answer, Ask, Lesson, Reservation};
use crate::run::client::{Failure, Fetched};
use crate::run::driver::Driver;
use crate::run::extract::{self, Findings};
use crate::run::item::{self, Item, Keep, Kept, Outcome};

/// Between a reservation and the request; whoever is slower asks anew.
const PROMPTLY: Duration = Duration::from_secs(5);
/// Whoever waits for a quota looks again so often: calls may be given back, and limits be raised.
const LONGEST_PARK: Duration = Duration::from_secs(2);
/// Between two looks at a store that is away.
const AWAY: Duration = Duration::from_millis(500);

/// Characters of an answer that are kept of a failure.
const EXCERPT: usize = 200;

/// What an attempt came to.
pub(crate) struct Tried {
    pub(crate) status: u16,
    pub(crate) calls: u32,
    pub(crate) result: Outcome,
}

/// A request that can be made.
struct Prepared {
    request: Request<Full<Bytes>>,
    asked: Asked,
}

/// What is known of a request after it was made.
struct Asked {
    url: Url,
    /// The result that holds on if the API says that nothing changed.
    kept: Option<Kept>,
    /// Hides the request's secrets in what is kept of the answer.
    mask: Mask,
}

impl Tried {
    fn unasked(result: Outcome) -> Self {
        Self { status: 0, calls: 0, result }
    }
}

impl Driver {
    /// Tries an item once.
    pub(crate) async fn attempt(&self, item: &Item) -> Tried {
        let step = self.plan.steps.get(&item.step);
        if item.unchanged
            && let (Some(step), Ok(Some(kept))) = (step, self.kept(item).await)
        {
            return Tried::unasked(kept.again(step));
        }
        let asks = item.step == PAGES || step.is_some_and(|step| step.get.is_some() || step.post.is_some());
        if asks {
            return self.ask(item, step).await;
        }
        let Some(step) = step else {
            return Tried::unasked(
                self.failed(item, Failure::parse(format!("there is no step {}", item.step))),
            );
        };
        let document =
            data(item).map(|data| if data.is_empty() { Value::from(item.key.as_str()) } else { data.into() });
        let found = document.and_then(|document| extract::of_step(step, &item.key, &document));
        Tried::unasked(match found {
            Ok(Findings { output, follow }) => Outcome::Done { output, follow, keep: self.keep(item, "") },
            Err(error) => self.failed(item, Failure::parse(error)),
        })
    }

    async fn ask(&self, item: &Item, step: Option<&Step>) -> Tried {
        let Prepared { request, asked } = match self.prepare(item, step).await {
            Ok(prepared) => prepared,
            Err(failure) => return Tried::unasked(self.failed(item, failure)),
        };
        let host = self.shared.host(asked.url.host_str().unwrap_or_default(), self.plan.http.per_host);
        let Ok(_permit) = host.acquire_owned().await else { return Tried::unasked(Outcome::GivenBack) };
        let Some((reservation, reserved)) = self.reserve().await else {
            return Tried::unasked(Outcome::GivenBack);
        };
        if reserved.elapsed() > PROMPTLY {
            // So much later that the call might be answered after its deadline.
            self.settle(&reservation, 0, Lesson::default()).await;
            return Tried::unasked(Outcome::GivenBack);
        }
        let _ = self.shared.views.show_start(&self.run, item).await;
        let most_bytes = self.plan.http.max_body_kib as usize * 1024;
        let fetched = self.shared.fetcher.fetch(request, self.plan.http.timeout.get(), most_bytes).await;
        let lesson = match &fetched {
            Ok(answer) => self.learn(answer).await,
            Err(_) => Lesson::default(),
        };
        self.settle(&reservation, 1, lesson).await;
        let _ = self.shared.views.hide_start(&self.run, item).await;
        let status = fetched.as_ref().map_or(0, |answer| answer.status.as_u16());
        crate::metrics::called(&self.plan.quota, status);
        let result = fetched.and_then(|answer| self.understand(item, step, &asked, &answer));
        let result = result.unwrap_or_else(|failure| match self.begin_anew(item, &asked.url, status) {
            Some(begin) => Outcome::Done { output: None, follow: vec![begin], keep: None },
            None => {
                let error = asked.mask.apply(&failure.error).into_owned();
                self.failed(item, Failure { error, ..failure })
            }
        });
        Tried { status, calls: 1, result }
    }

    /// Waits until the quota lets a call pass; `None` if the run stops before. One of the run's items waits at a time.
    async fn reserve(&self) -> Option<(Reservation, Instant)> {
        let _front = tokio::select! {
            front = self.gate.lock() => front,
            () = self.stop.cancelled() => return None,
        };
        let hold = self.plan.http.timeout.get() + PROMPTLY + PROMPTLY;
        let (run, weight) = (self.run.to_string(), self.plan.weight);
        let ask = Ask { id: Ask::fresh_id(), calls: 1, run, weight, hold };
        loop {
            if self.stop.is_cancelled() {
                return None;
            }
            let asked = Instant::now();
            let park = match self.shared.quotas.reserve(&self.plan.quota, &ask).await {
                Ok(Answer::Granted(reservation)) => return Some((reservation, asked)),
                Ok(Answer::Wait { after, .. }) => after.min(LONGEST_PARK),
                Err(error) => {
                    // Closed while nobody knows what was spent.
                    tracing::warn!(run = %self.run, quota = %self.plan.quota, %error, "the quota cannot be asked");
                    AWAY
                }
            };
            tokio::select! {
                () = tokio::time::sleep(park) => {}
                () = self.stop.cancelled() => return None,
            }
        }
    }

    async fn settle(&self, reservation: &Reservation, made: u32, lesson: Lesson) {
        if lesson.blocked_for.is_some() {
            tracing::warn!(quota = %reservation.quota, wait = ?lesson.blocked_for, "the API refuses calls");
        }
        if let Err(error) = self.shared.quotas.settle(reservation, made, lesson).await {
            // It counts as answered at its deadline: too late, which harms nobody.
            tracing::warn!(quota = %reservation.quota, %error, "a call could not be settled");
        }
    }

    async fn learn(&self, answer: &Fetched) -> Lesson {
        match self.shared.quotas.definition(&self.plan.quota).await {
            Ok(quota) => {
                Lesson::from_answer(answer.status, &answer.headers, &quota.limits, jiff::Timestamp::now())
            }
            Err(_) => Lesson::default(),
        }
    }

    async fn prepare(&self, item: &Item, step: Option<&Step>) -> Result<Prepared, Failure> {
        let data = data(item).map_err(Failure::parse)?;
        let (url_template, headers) = match (step, &self.plan.source) {
            (Some(step), _) => (step.get.as_ref().or(step.post.as_ref()), &step.headers),
            (None, Source::Pages { pages, .. }) => (None, &pages.headers),
            (None, _) => return Err(Failure::parse("a page of a listing that the plan does not have")),
        };
        let body = step.and_then(|step| step.body.as_ref());
        let post = step.is_some_and(|step| step.post.is_some());
        let fill_url = |filling: &Filling<'_>| match url_template {
            Some(url) => url.fill(filling, Place::Url),
            // Of a listing, the page is the item itself.
            None => Ok(item.key.clone()),
        };
        let no_secrets = |name: &SecretName| Err(SecretRefused::NotListed(name.clone()));
        let filling = Filling { key: &item.key, data: &data, secrets: &no_secrets };
        let names: Vec<&SecretName> =
            headers.values().chain(url_template).chain(body).flat_map(Template::secrets).collect();
        let granted = Granted::read(&self.shared.context.secrets, &names, fill_url, headers, &filling);
        let granted = granted.map_err(Failure::parse)?;
        let secrets = |name: &SecretName| granted.get(name);
        let filling = Filling { secrets: &secrets, ..filling };
        let url = fill_url(&filling).map_err(Failure::parse)?;
        let url = Url::parse(&url).map_err(|error| Failure::parse(format!("the URL: {error}")))?;
        let method = if post { http::Method::POST } else { http::Method::GET };
        let mut target = url.clone();
        target.set_fragment(None);
        let mut request = Request::builder().method(method).uri(target.as_str());
        request = request.header(header::USER_AGENT, concat!("hob/", env!("CARGO_PKG_VERSION")));
        request = request.header(header::ACCEPT, "application/json");
        for (name, value) in headers {
            request = request.header(name, value.fill(&filling, Place::Header).map_err(Failure::parse)?);
        }
        let mut kept = None;
        if step.is_some_and(|step| step.conditional && step.get.is_some()) {
            // Without its last result an item is asked for as if for the first time.
            kept = self.kept(item).await.unwrap_or_default().filter(|kept| !kept.etag.is_empty());
        }
        if let Some(kept) = &kept {
            request = request.header(header::IF_NONE_MATCH, &kept.etag);
        }
        let body = body.map(|body| body.fill(&filling, Place::Json));
        let body = body.transpose().map_err(Failure::parse)?.unwrap_or_default();
        if post {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request
            .body(Full::from(body))
            .map_err(|error| Failure::parse(format!("the request: {error}")))?;
        Ok(Prepared { request, asked: Asked { url, kept, mask: granted.mask() } })
    }

    fn understand(
        &self,
        item: &Item,
        step: Option<&Step>,
        asked: &Asked,
        answer: &Fetched,
    ) -> Result<Outcome, Failure> {
        let excerpt = || -> String {
            asked.mask.beginning(&answer.body, EXCERPT).chars().filter(|c| !c.is_control()).collect()
        };
        if answer.status == StatusCode::NOT_MODIFIED
            && let (Some(step), Some(kept)) = (step, &asked.kept)
        {
            return Ok(kept.clone().again(step));
        }
        if let Some(class) = class_of(answer.status) {
            return Err(Failure { class, error: format!("{}: {}", answer.status, excerpt()) });
        }
        let document: Value = serde_json::from_slice(&answer.body)
            .map_err(|error| Failure::parse(format!("no JSON ({error}): {}", excerpt())))?;
        let found = match (step, &self.plan.source) {
            (Some(step), _) => extract::of_step(step, &item.key, &document),
            (None, Source::Pages { step, pages }) => extract::of_page(pages, step, &asked.url, &document),
            (None, _) => Err("a page of a listing that the plan does not have".to_owned()),
        };
        let Findings { output, follow } = found.map_err(Failure::parse)?;
        let etag = answer.headers.get(header::ETAG).and_then(|etag| etag.to_str().ok());
        Ok(Outcome::Done { output, follow, keep: self.keep(item, etag.unwrap_or_default()) })
    }

    /// What an earlier run has kept of an item.
    async fn kept(&self, item: &Item) -> Result<Option<Kept>, crate::Error> {
        let Some(shape) = self.kept_steps.get(&item.step) else { return Ok(None) };
        Kept::find(&self.shared.context.database, self.plan.name.as_str(), item, shape).await
    }

    /// Under what a result is kept for a later run, where it is.
    fn keep(&self, item: &Item, etag: &str) -> Option<Keep> {
        let shape = self.kept_steps.get(&item.step)?;
        Some(Keep { shape: shape.clone(), etag: etag.to_owned() })
    }

    /// The listing's first page again, where the API no longer knows the cursor.
    fn begin_anew(&self, item: &Item, url: &Url, status: u16) -> Option<item::NewItem> {
        let Source::Pages { pages, .. } = &self.plan.source else { return None };
        let unknown = item.step == PAGES && matches!(status, 400 | 404 | 410);
        let begin = unknown.then(|| extract::begin_anew(pages.url.as_str(), url)).flatten()?;
        tracing::warn!(run = %self.run, status, "the API does not know the cursor any more; the listing begins anew");
        Some(begin)
    }

    /// What becomes of an item that failed.
    fn failed(&self, item: &Item, failure: Failure) -> Outcome {
        let Failure { class, error } = failure;
        let error: String = error.chars().filter(|c| *c != '\0').take(500).collect();
        match self.plan.retries.judge(class, item.attempts, rand::random()) {
            Verdict::Again { after } => Outcome::Again { class, error, after },
            Verdict::Quarantine => Outcome::Quarantined { class, error },
        }
    }
}

fn class_of(status: StatusCode) -> Option<Class> {
    match status {
        StatusCode::TOO_MANY_REQUESTS => Some(Class::Throttled),
        StatusCode::REQUEST_TIMEOUT => Some(Class::Server),
        status if status.is_success() => None,
        status if status.is_server_error() => Some(Class::Server),
        // A redirection, too: following it would be a call that nobody reserved.
        _ => Some(Class::Client),
    }
}

fn data(item: &Item) -> Result<Map<String, Value>, String> {
    if item.data.is_empty() {
        return Ok(Map::new());
    }
    serde_json::from_str(&item.data).map_err(|error| format!("the item's data: {error}"))
}
