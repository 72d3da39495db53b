//! The form that adds and edits monitors.

use std::collections::BTreeMap;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use hob_web::components::{Choice, Field};
use hob_web::{AuditDetail, Console, Form, Page, Path, Problem};
use serde::Deserialize;

use super::path;
use crate::monitor::MonitorSpec;
use crate::monitor::check::{
    AuthSpec, DnsSpec, FieldError, HeartbeatSpec, HttpSpec, HttpVersion, MonitorKind, RecordType,
};
use crate::routes::{added_monitor, edited_monitor, find_monitor};
use crate::uptime::{AddOutcome, EditOutcome, Uptime};

#[derive(Template)]
#[template(path = "uptime/form.html")]
struct FormPage {
    action: String,
    button: &'static str,
    /// Errors that do not belong to a field.
    general: String,
    main: Vec<Field>,
    more: Vec<Field>,
    http: Vec<Field>,
    dns: Vec<Field>,
    heartbeat: Vec<Field>,
    open_more: bool,
    open_http: bool,
    open_dns: bool,
    open_heartbeat: bool,
}

/// The fields of the form. All are text; they are parsed together, to report all errors at once.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct MonitorForm {
    name: String,
    kind: String,
    target: String,
    interval_s: String,
    timeout_s: String,
    retries: String,
    retry_delay_s: String,
    down_interval_s: String,
    recoveries: String,
    remind_s: String,
    assertions: String,
    tags: String,
    group: String,
    channels: String,
    published: String,
    paused: String,
    method: String,
    headers: String,
    body: String,
    redirects: String,
    version: String,
    user: String,
    secret: String,
    record: String,
    expected: String,
    server: String,
    cron: String,
    grace_s: String,
}

pub(super) async fn blank(console: Console) -> Result<Page, Problem> {
    let spec = MonitorSpec::new("", MonitorKind::Http, "");
    let page = MonitorForm::of(&spec).page("/uptime/new".to_owned(), "Add", &[]);
    console.page("Add a monitor", &page)
}

pub(super) async fn filled(
    console: Console,
    State(uptime): State<Uptime>,
    Path(id): Path<String>,
) -> Result<Page, Problem> {
    let monitor = find_monitor(&uptime, &id).await?;
    let page = MonitorForm::of(&monitor.spec).page(format!("{}/edit", path(&monitor.id)), "Save", &[]);
    console.page_below(&[(&monitor.spec.name, &path(&monitor.id))], "Edit", &page)
}

pub(super) async fn add(
    console: Console,
    State(uptime): State<Uptime>,
    Form(form): Form<MonitorForm>,
) -> Result<Response, Problem> {
    let action = || "/uptime/new".to_owned();
    let errors = match form.spec() {
        Err(errors) => errors,
        Ok(spec) => match uptime.add(None, &spec).await? {
            AddOutcome::Invalid(errors) => errors,
            done => {
                let monitor = added_monitor(done)?;
                let detail = AuditDetail::Of(monitor.id.to_string());
                return Ok((detail, Redirect::to(&path(&monitor.id))).into_response());
            }
        },
    };
    let page = console.page("Add a monitor", &form.page(action(), "Add", &errors))?;
    Ok((StatusCode::UNPROCESSABLE_ENTITY, page).into_response())
}

pub(super) async fn edit(
    console: Console,
    State(uptime): State<Uptime>,
    Path(id): Path<String>,
    Form(form): Form<MonitorForm>,
) -> Result<Response, Problem> {
    let monitor = find_monitor(&uptime, &id).await?;
    let errors = match form.spec() {
        Err(errors) => errors,
        Ok(spec) => match uptime.edit(&monitor.id, &spec).await? {
            EditOutcome::Invalid(errors) => errors,
            done => {
                let monitor = edited_monitor(done)?;
                return Ok(Redirect::to(&path(&monitor.id)).into_response());
            }
        },
    };
    let action = format!("{}/edit", path(&monitor.id));
    let page = console.page_below(
        &[(&monitor.spec.name, &path(&monitor.id))],
        "Edit",
        &form.page(action, "Save", &errors),
    )?;
    Ok((StatusCode::UNPROCESSABLE_ENTITY, page).into_response())
}

impl MonitorForm {
    /// The form of an existing monitor.
    fn of(spec: &MonitorSpec) -> Self {
        let http = spec.http.clone().unwrap_or_default();
        let dns = spec.dns.clone().unwrap_or_default();
        let heartbeat = spec.heartbeat.clone().unwrap_or_default();
        let optional = |number: Option<u32>| number.map(|number| number.to_string()).unwrap_or_default();
        let tick = |checked: bool| if checked { "on".to_owned() } else { String::new() };
        let (user, secret) = match http.auth {
            Some(AuthSpec::Basic { user, password }) => (user, password),
            Some(AuthSpec::Bearer { token }) => (String::new(), token),
            None => Default::default(),
        };
        let headers: Vec<String> =
            http.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        Self {
            name: spec.name.clone(),
            kind: spec.kind.to_string(),
            target: spec.target.clone(),
            interval_s: spec.interval_s.to_string(),
            timeout_s: optional(spec.timeout_s),
            retries: spec.retries.to_string(),
            retry_delay_s: spec.retry_delay_s.to_string(),
            down_interval_s: optional(spec.down_interval_s),
            recoveries: spec.recoveries.to_string(),
            remind_s: spec.remind_s.to_string(),
            assertions: spec.assertions.join("\n"),
            tags: spec.tags.join(", "),
            group: spec.group.clone(),
            channels: spec.channels.join(", "),
            published: tick(spec.published),
            paused: tick(spec.paused),
            method: http.method,
            headers: headers.join("\n"),
            body: http.body.unwrap_or_default(),
            redirects: http.redirects.to_string(),
            version: word(&http.version),
            user,
            secret,
            record: word(&dns.record),
            expected: dns.expected.join("\n"),
            server: dns.server.unwrap_or_default(),
            cron: heartbeat.cron.unwrap_or_default(),
            grace_s: heartbeat.grace_s.to_string(),
        }
    }

    /// The monitor that the form describes.
    fn spec(&self) -> Result<MonitorSpec, Vec<FieldError>> {
        let mut errors = Vec::new();
        let kind: MonitorKind = chosen("kind", &self.kind, MonitorKind::Http, &mut errors);
        let blank = MonitorSpec::new("", kind, "");
        let mut spec = MonitorSpec {
            name: self.name.trim().to_owned(),
            target: self.target.trim().to_owned(),
            interval_s: number("interval_s", &self.interval_s, blank.interval_s, &mut errors),
            timeout_s: optional("timeout_s", &self.timeout_s, &mut errors),
            retries: number("retries", &self.retries, blank.retries, &mut errors),
            retry_delay_s: number("retry_delay_s", &self.retry_delay_s, blank.retry_delay_s, &mut errors),
            down_interval_s: optional("down_interval_s", &self.down_interval_s, &mut errors),
            recoveries: number("recoveries", &self.recoveries, blank.recoveries, &mut errors),
            remind_s: number("remind_s", &self.remind_s, blank.remind_s, &mut errors),
            assertions: lines(&self.assertions),
            tags: commas(&self.tags),
            group: self.group.trim().to_owned(),
            channels: commas(&self.channels),
            published: self.published == "on",
            paused: self.paused == "on",
            ..blank
        };
        match kind {
            MonitorKind::Http => spec.http = Some(self.http(&mut errors)),
            MonitorKind::Dns => spec.dns = Some(self.dns(&mut errors)),
            MonitorKind::Heartbeat => {
                let cron = Some(self.cron.trim().to_owned()).filter(|cron| !cron.is_empty());
                let grace_s = number("heartbeat.grace_s", &self.grace_s, 60, &mut errors);
                spec.heartbeat = Some(HeartbeatSpec { cron, grace_s });
            }
            MonitorKind::Tcp | MonitorKind::Certificate => {}
        }
        if errors.is_empty() { Ok(spec) } else { Err(errors) }
    }

    fn http(&self, errors: &mut Vec<FieldError>) -> HttpSpec {
        let mut headers = BTreeMap::new();
        for line in lines(&self.headers) {
            match line.split_once(':') {
                Some((name, value)) => drop(headers.insert(name.trim().to_owned(), value.trim().to_owned())),
                None => {
                    errors.push(FieldError::new("http.headers", "each line must have the form Name: value"));
                }
            }
        }
        let (user, secret) = (self.user.trim().to_owned(), self.secret.trim().to_owned());
        HttpSpec {
            method: if self.method.is_empty() { "GET".to_owned() } else { self.method.trim().to_uppercase() },
            headers,
            body: Some(self.body.clone()).filter(|body| !body.is_empty()),
            redirects: u8::try_from(number("http.redirects", &self.redirects, 5, errors)).unwrap_or(u8::MAX),
            auth: match (user.is_empty(), secret.is_empty()) {
                (true, true) => None,
                (true, false) => Some(AuthSpec::Bearer { token: secret }),
                (false, _) => Some(AuthSpec::Basic { user, password: secret }),
            },
            version: chosen("http.version", &self.version, HttpVersion::Auto, errors),
        }
    }

    fn dns(&self, errors: &mut Vec<FieldError>) -> DnsSpec {
        DnsSpec {
            record: chosen("dns.record", &self.record, RecordType::A, errors),
            expected: lines(&self.expected),
            server: Some(self.server.trim().to_owned()).filter(|server| !server.is_empty()),
        }
    }

    fn page(&self, action: String, button: &'static str, errors: &[FieldError]) -> FormPage {
        let error = |field: &str| {
            let concerns = |one: &&FieldError| {
                one.field
                    .strip_prefix(field)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with(['[', '.']))
            };
            errors.iter().find(concerns).map(|one| one.message.clone())
        };
        let has = |prefix: &str| errors.iter().any(|one| one.field.starts_with(prefix));
        let general = errors.iter().filter(|one| one.field.is_empty()).map(|one| one.message.as_str());
        FormPage {
            action,
            button,
            general: general.collect::<Vec<_>>().join("; "),
            main: self.main_fields(&error),
            more: self.more_fields(&error),
            http: self.http_fields(&error),
            dns: self.dns_fields(&error),
            heartbeat: self.heartbeat_fields(&error),
            open_more: !errors.is_empty() && !has("http") && !has("dns") && !has("heartbeat"),
            open_http: has("http"),
            open_dns: self.kind == "dns",
            open_heartbeat: self.kind == "heartbeat",
        }
    }

    fn main_fields(&self, error: &dyn Fn(&str) -> Option<String>) -> Vec<Field> {
        let kinds = ["http", "tcp", "dns", "certificate", "heartbeat"];
        vec![
            Field::text("name", "Name").value(&self.name).required().max_length(128).error(error("name")),
            Field::choice("kind", "Kind", choices(&kinds)).value(&self.kind).error(error("kind")),
            Field::text("target", "Target")
                .value(&self.target)
                .hint("A URL, host:port, or a domain name; empty for a heartbeat")
                .error(error("target")),
            Field::number("interval_s", "Interval (s)")
                .value(&self.interval_s)
                .between(1, 86_400)
                .error(error("interval_s")),
            Field::lines("assertions", "Assertions")
                .value(&self.assertions)
                .hint(
                    "One per line: status in 200..299, body contains \"x\", json $.ok == true, latency < 500ms",
                )
                .error(error("assertions")),
            Field::text("group", "Group").value(&self.group).max_length(64).error(error("group")),
            Field::text("tags", "Tags").value(&self.tags).hint("Separated by commas").error(error("tags")),
            Field::checkbox("published", "Show on the public status page").value(&self.published),
            Field::checkbox("paused", "Paused").value(&self.paused),
        ]
    }

    fn more_fields(&self, error: &dyn Fn(&str) -> Option<String>) -> Vec<Field> {
        let seconds =
            |name: &str, label: &str, value: &str| Field::number(name, label).value(value).error(error(name));
        vec![
            seconds("timeout_s", "Timeout (s)", &self.timeout_s).hint("Default: 10"),
            seconds("retries", "Retries", &self.retries).between(0, 100),
            seconds("retry_delay_s", "Retry delay (s)", &self.retry_delay_s).between(1, 3600),
            seconds("down_interval_s", "Interval while down (s)", &self.down_interval_s)
                .hint("Default: the interval"),
            seconds("recoveries", "Successful checks that resolve an incident", &self.recoveries)
                .between(1, 100),
            seconds("remind_s", "Reminder interval (s)", &self.remind_s).hint("0: no reminders"),
            Field::text("channels", "Channels")
                .value(&self.channels)
                .hint("Names or ids, separated by commas")
                .error(error("channels")),
        ]
    }

    fn http_fields(&self, error: &dyn Fn(&str) -> Option<String>) -> Vec<Field> {
        vec![
            Field::text("method", "Method").value(&self.method).max_length(16).error(error("http.method")),
            Field::lines("headers", "Headers")
                .value(&self.headers)
                .hint("One per line: Name: value")
                .error(error("http.headers")),
            Field::lines("body", "Body").value(&self.body).error(error("http.body")),
            Field::number("redirects", "Maximum redirects")
                .value(&self.redirects)
                .between(0, 20)
                .error(error("http.redirects")),
            Field::choice("version", "HTTP version", choices(&["auto", "1.1", "2"])).value(&self.version),
            Field::text("user", "User").value(&self.user).autocomplete("off").hint("For basic authentication"),
            Field::text("secret", "Secret")
                .value(&self.secret)
                .autocomplete("off")
                .hint("Name of a secret under [secrets] in hob.toml: a password, or a bearer token if there is no user")
                .error(error("http.auth")),
        ]
    }

    fn dns_fields(&self, error: &dyn Fn(&str) -> Option<String>) -> Vec<Field> {
        let records = ["A", "AAAA", "CNAME", "MX", "NS", "TXT"];
        vec![
            Field::choice("record", "Record", choices(&records)).value(&self.record),
            Field::lines("expected", "Expected answers")
                .value(&self.expected)
                .hint("One per line; if empty, any answer is good")
                .error(error("dns.expected")),
            Field::text("server", "Name server")
                .value(&self.server)
                .placeholder("9.9.9.9:53")
                .error(error("dns.server")),
        ]
    }

    fn heartbeat_fields(&self, error: &dyn Fn(&str) -> Option<String>) -> Vec<Field> {
        vec![
            Field::text("cron", "Cron pattern (UTC)")
                .value(&self.cron)
                .placeholder("0 3 * * *")
                .hint("Default: every interval")
                .error(error("heartbeat.cron")),
            Field::number("grace_s", "Grace (s)").value(&self.grace_s).error(error("heartbeat.grace_s")),
        ]
    }
}

fn choices(values: &[&str]) -> Vec<Choice> {
    values.iter().map(|value| Choice { value: (*value).to_owned(), label: (*value).to_owned() }).collect()
}

/// The serialized name of an enum value.
fn word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// The enum value with this name; the default if the text is empty.
fn chosen<T: serde::de::DeserializeOwned>(
    field: &str,
    text: &str,
    default: T,
    errors: &mut Vec<FieldError>,
) -> T {
    if text.is_empty() {
        return default;
    }
    serde_json::from_value(serde_json::Value::String(text.to_owned())).unwrap_or_else(|_| {
        errors.push(FieldError::new(field, "is not one of the options"));
        default
    })
}

fn number(field: &str, text: &str, default: u32, errors: &mut Vec<FieldError>) -> u32 {
    optional(field, text, errors).unwrap_or(default)
}

fn optional(field: &str, text: &str, errors: &mut Vec<FieldError>) -> Option<u32> {
    match text.trim() {
        "" => None,
        text => text.parse().map_err(|_| errors.push(FieldError::new(field, "must be a whole number"))).ok(),
    }
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
}

fn commas(text: &str) -> Vec<String> {
    text.split(',').map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_of_a_monitor_describes_the_same_monitor() {
        for json in [
            r#"{"name":"a","kind":"http","target":"https://x/","http":{"method":"POST","headers":{"x-a":"b"},"body":"{}",
                "redirects":0,"auth":{"basic":{"user":"ann","password":"pw"}},"version":"2"},"tags":["a","b"],
                "assertions":["status == 200"],"published":true,"timeout_s":5}"#,
            r#"{"name":"a","kind":"tcp","target":"h:1","paused":true,"down_interval_s":7}"#,
            r#"{"name":"a","kind":"dns","target":"x.example","dns":{"record":"MX","expected":["m"]}}"#,
            r#"{"name":"a","kind":"heartbeat","heartbeat":{"cron":"0 3 * * *","grace_s":9}}"#,
        ] {
            let spec: MonitorSpec = serde_json::from_str(json).unwrap();
            assert_eq!(MonitorForm::of(&spec).spec().unwrap(), spec);
        }
    }

    #[test]
    fn invalid_number_is_reported_at_its_field() {
        let form =
            MonitorForm { retries: "many".to_owned(), kind: "pigeon".to_owned(), ..MonitorForm::default() };
        let fields: Vec<String> = form.spec().unwrap_err().into_iter().map(|errors| errors.field).collect();
        assert_eq!(fields, ["kind", "retries"]);
    }
}
