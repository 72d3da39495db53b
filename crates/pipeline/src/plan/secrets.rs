//! Checks whether a plan may use its secrets: when the plan is saved, so that its author sees the error, when a run starts,
//! and again for every request, since `hob.toml` may have changed and the host may come from the item.

use std::collections::BTreeMap;
use std::str::FromStr as _;

use hob_expression::Escape;
use hob_service::Section as _;
use hob_service::config::{Destination, Mask, Secret, SecretDenied, SecretName, Secrets};
use http::header::HOST;
use sqlx::postgres::PgConnectOptions;
use url::{Position, Url};

use crate::config::Config;
use crate::error::{Error, Result};
use crate::plan::template::{Template, TemplateError, TemplateValues};
use crate::plan::{Plan, Sink, SinkDatabase, Source};

const SYSTEM: &str = Config::NAME;
/// Two values in place of unknown ones: a part of the URL that differs between them depends on the value. Digits are
/// valid in every part of a URL.
const SAMPLE_VALUES: [&str; 2] = ["1", "2"];

/// The templates of one request.
struct RequestTemplate<'a> {
    field: String,
    url_field: &'static str,
    url: &'a Template,
    headers: &'a BTreeMap<String, Template>,
    body: Option<&'a Template>,
}

/// The secrets of one request.
#[derive(Default)]
pub(crate) struct RequestSecrets(BTreeMap<SecretName, Secret>);

/// Checks that a plan may use its secrets.
pub(crate) fn check_plan(secrets: &Secrets, plan: &Plan) -> Result<()> {
    for request in requests(plan) {
        request.for_each_secret(|name| request.check(secrets, name))?;
    }
    check_sinks(secrets, plan)
}

/// Checks that the secrets of a plan are set, so that a run does not start without them.
pub(crate) fn check_readable(secrets: &Secrets, plan: &Plan) -> Result<()> {
    for request in requests(plan) {
        request.for_each_secret(|name| secrets.check_readable(name, SYSTEM))?;
    }
    check_sinks(secrets, plan)
}

fn check_sinks(secrets: &Secrets, plan: &Plan) -> Result<()> {
    for (name, sink) in &plan.sinks {
        if let Sink::Table { database: SinkDatabase::Postgres(secret), .. } = sink {
            database_url(secrets, secret)
                .map_err(|refused| Error::secret(format!("sink.{name}.postgres"), refused))?;
        }
    }
    Ok(())
}

/// Reads a secret that holds the URL of a PostgreSQL database.
pub(crate) fn database_url(secrets: &Secrets, name: &SecretName) -> Result<Secret, SecretDenied> {
    secrets.read_address(name, SYSTEM, |secret| {
        // For other URLs, sqlx would log their parameters as unknown options.
        let url = Url::parse(secret.reveal()).ok()?;
        let options = matches!(url.scheme(), "postgres" | "postgresql")
            .then(|| PgConnectOptions::from_str(secret.reveal()).ok())
            .flatten()?;
        let is_socket = options.get_socket().is_some() || options.get_host().starts_with('/');
        let host = if is_socket { "localhost" } else { options.get_host() };
        Destination::new(host, Some(options.get_port()))
    })
}

impl RequestSecrets {
    /// Reads the secrets of a request. `url` renders its URL.
    pub(crate) fn read(
        secrets: &Secrets,
        names: &[&SecretName],
        url: impl Fn(&TemplateValues<'_>) -> Result<String, TemplateError>,
        headers: &BTreeMap<String, Template>,
        values: &TemplateValues<'_>,
    ) -> Result<Self, TemplateError> {
        let Some(first) = names.first().copied() else { return Ok(Self::default()) };
        let sample_url = |sample: &str| {
            let value = |_: &SecretName| Ok(Secret::from(sample.to_owned()));
            url(&TemplateValues { secrets: &value, ..*values }).map(|url| Url::parse(&url).ok())
        };
        let [one, two] = SAMPLE_VALUES.map(sample_url);
        let (one, two) = (one?, two?);
        if origin(one.as_ref()) != origin(two.as_ref()) {
            return Err(SecretDenied::InHost(first.clone()).into());
        }
        let to = one.as_ref().and_then(Destination::of_url);
        let to = to.ok_or_else(|| SecretDenied::NoHost(first.clone()))?;
        let no_secret = |name: &SecretName| Err(SecretDenied::BadHostHeader(name.clone()));
        let plain = TemplateValues { secrets: &no_secret, ..*values };
        let mut allowed = Self::default();
        for name in names {
            for (_, host) in headers.iter().filter(|(header, _)| is_host(header)) {
                let host = host.render(&plain, Escape::Header)?;
                secrets.check_host_header(name, SYSTEM, &to, host.as_bytes())?;
            }
            allowed.0.insert((*name).clone(), secrets.read(name, SYSTEM, &to)?);
        }
        Ok(allowed)
    }

    pub(crate) fn get(&self, name: &SecretName) -> Result<Secret, SecretDenied> {
        self.0.get(name).cloned().ok_or_else(|| SecretDenied::NotListed(name.clone()))
    }

    /// Masks the secrets in a response.
    pub(crate) fn mask(&self) -> Mask {
        let mut mask = Mask::default();
        for secret in self.0.values() {
            for escape in [Escape::Url, Escape::Header] {
                mask.hide(&escape.apply(secret.reveal()));
            }
        }
        mask
    }
}

impl RequestTemplate<'_> {
    /// Names the field of the first secret that `check` refuses.
    fn for_each_secret(&self, check: impl Fn(&SecretName) -> Result<(), SecretDenied>) -> Result<()> {
        let url = (self.url_field.to_owned(), self.url);
        let headers = self.headers.iter().map(|(name, value)| (format!("headers.{name}"), value));
        let body = self.body.map(|body| ("body".to_owned(), body));
        for (part, template) in [url].into_iter().chain(headers).chain(body) {
            for name in template.secrets() {
                let field = || format!("{}.{part}", self.field);
                check(name).map_err(|refused| Error::secret(field(), refused))?;
            }
        }
        Ok(())
    }

    fn check(&self, secrets: &Secrets, name: &SecretName) -> Result<(), SecretDenied> {
        secrets.check_service(name, SYSTEM)?;
        let [one, two] = SAMPLE_VALUES;
        let sample_url =
            |item: &str, secret: &str| Url::parse(&self.url.with_sample_values(item, secret)).ok();
        let url = sample_url(one, one);
        if origin(sample_url(one, two).as_ref()) != origin(url.as_ref()) {
            return Err(SecretDenied::InHost(name.clone()));
        }
        let Some(url) = url.filter(|url| origin(sample_url(two, one).as_ref()) == origin(Some(url))) else {
            // The host depends on the item and is checked for each request.
            return Ok(());
        };
        let to = secrets.check_url(name, SYSTEM, &url)?;
        for (_, host) in self.headers.iter().filter(|(header, _)| is_host(header)) {
            if host.secrets().next().is_some() {
                return Err(SecretDenied::BadHostHeader(name.clone()));
            }
            if let Some(host) = host.fixed() {
                secrets.check_host_header(name, SYSTEM, &to, host.as_bytes())?;
            }
        }
        Ok(())
    }
}

fn requests(plan: &Plan) -> impl Iterator<Item = RequestTemplate<'_>> {
    let pages = match &plan.source {
        Source::Pages { pages, .. } => Some(pages),
        _ => None,
    };
    let pages = pages.map(|pages| RequestTemplate {
        field: "source.pages".to_owned(),
        url_field: "url",
        url: &pages.url,
        headers: &pages.headers,
        body: None,
    });
    let steps = plan.steps.iter().filter_map(|(name, step)| {
        let get = step.get.as_ref().map(|url| ("get", url));
        let (url_field, url) = get.or(step.post.as_ref().map(|url| ("post", url)))?;
        let (headers, body) = (&step.headers, step.body.as_ref());
        Some(RequestTemplate { field: format!("step.{name}"), url_field, url, headers, body })
    });
    pages.into_iter().chain(steps)
}

/// Everything before the path.
fn origin(url: Option<&Url>) -> Option<&str> {
    url.map(|url| &url[..Position::BeforePath])
}

fn is_host(header: &str) -> bool {
    header.eq_ignore_ascii_case(HOST.as_str())
}
