//! The form that adds and edits monitors. It shows the fields of one kind of monitor, and can test the target before the
//! monitor is saved. All buttons submit the form, so that it works without scripts and nothing that was entered is lost.

mod fields;
mod trial;

use std::collections::{BTreeMap, HashMap};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use hob_web::{AuditDetail, Console, Form, Page, Path, Problem};
use serde::Deserialize;

use self::fields::FormPage;
use self::trial::Trial;
use super::path;
use crate::database::channels;
use crate::monitor::MonitorSpec;
use crate::monitor::check::{
    AuthSpec, DnsSpec, FieldError, HeartbeatSpec, HttpSpec, HttpVersion, MonitorKind, RecordType,
};
use crate::routes::{added_monitor, edited_monitor, find_monitor};
use crate::uptime::{AddOutcome, EditOutcome, Uptime};

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
    /// The button that was pressed: empty to save.
    #[serde(rename = "do")]
    button: String,
    /// The form lists the channels: those that are selected are among `rest`.
    lists_channels: String,
    #[serde(flatten)]
    rest: HashMap<String, String>,
}

/// What a button of the form does.
enum Button<'a> {
    Save,
    /// Tests the target.
    Test,
    /// Shows the fields of another kind.
    Kind(&'a str),
    /// Adds an assertion.
    Assertion(&'a str),
}

pub(super) async fn blank(console: Console, State(uptime): State<Uptime>) -> Result<Page, Problem> {
    let spec = MonitorSpec::new("", MonitorKind::Http, "");
    let channels = channels::all(uptime.database()).await?;
    let page = MonitorForm::of(&spec).page("/uptime/new".to_owned(), "Add", &channels, &[], None);
    console.page("Add a monitor", &page)
}

pub(super) async fn filled(
    console: Console,
    State(uptime): State<Uptime>,
    Path(id): Path<String>,
) -> Result<Page, Problem> {
    let monitor = find_monitor(&uptime, &id).await?;
    let channels = channels::all(uptime.database()).await?;
    let action = format!("{}/edit", path(&monitor.id));
    let page = MonitorForm::of(&monitor.spec).page(action, "Save", &channels, &[], None);
    console.page_below(&[(&monitor.spec.name, &path(&monitor.id))], "Edit", &page)
}

pub(super) async fn add(
    console: Console,
    State(uptime): State<Uptime>,
    Form(form): Form<MonitorForm>,
) -> Result<Response, Problem> {
    let errors = match form.spec() {
        Ok(spec) if matches!(form.button(), Button::Save) => match uptime.add(None, &spec).await? {
            AddOutcome::Invalid(errors) => errors,
            done => {
                let monitor = added_monitor(done)?;
                let detail = AuditDetail::Of(monitor.id.to_string());
                return Ok((detail, Redirect::to(&path(&monitor.id))).into_response());
            }
        },
        Ok(_) => Vec::new(),
        Err(errors) => errors,
    };
    let (status, page) = form.again(&uptime, "/uptime/new".to_owned(), "Add", errors).await?;
    Ok((status, console.page("Add a monitor", &page)?).into_response())
}

pub(super) async fn edit(
    console: Console,
    State(uptime): State<Uptime>,
    Path(id): Path<String>,
    Form(form): Form<MonitorForm>,
) -> Result<Response, Problem> {
    let monitor = find_monitor(&uptime, &id).await?;
    let errors = match form.spec() {
        Ok(spec) if matches!(form.button(), Button::Save) => match uptime.edit(&monitor.id, &spec).await? {
            EditOutcome::Invalid(errors) => errors,
            done => {
                let monitor = edited_monitor(done)?;
                return Ok(Redirect::to(&path(&monitor.id)).into_response());
            }
        },
        Ok(_) => Vec::new(),
        Err(errors) => errors,
    };
    let action = format!("{}/edit", path(&monitor.id));
    let (status, page) = form.again(&uptime, action, "Save", errors).await?;
    let page = console.page_below(&[(&monitor.spec.name, &path(&monitor.id))], "Edit", &page)?;
    Ok((status, page).into_response())
}

impl MonitorForm {
    fn button(&self) -> Button<'_> {
        match self.button.split_once(':') {
            Some(("kind", kind)) => Button::Kind(kind),
            Some(("assertion", text)) => Button::Assertion(text),
            _ if self.button == "test" => Button::Test,
            _ => Button::Save,
        }
    }

    /// The form again, after a button that does not save, or with the errors of one that does.
    async fn again(
        mut self,
        uptime: &Uptime,
        action: String,
        label: &'static str,
        mut errors: Vec<FieldError>,
    ) -> Result<(StatusCode, FormPage), Problem> {
        let channels = channels::all(uptime.database()).await?;
        let mut trial = None;
        let mut is_draft = true;
        match self.button() {
            Button::Save => is_draft = false,
            Button::Kind(kind) => self.kind = kind.to_owned(),
            Button::Assertion(text) => {
                let line = text.to_owned();
                self.assertions = format!("{}\n{line}", self.assertions.trim_end()).trim_start().to_owned();
            }
            Button::Test if errors.is_empty() => match self.spec() {
                Ok(spec) => match Trial::run(uptime, &spec).await {
                    Ok(done) => trial = Some(done),
                    Err(found) => errors = found,
                },
                Err(found) => errors = found,
            },
            Button::Test => {}
        }
        let tested = matches!(self.button(), Button::Test);
        // A draft is incomplete: its errors are shown when it is tested or saved.
        let shown = if is_draft && !tested { &[][..] } else { &errors[..] };
        let status = if shown.is_empty() { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };
        let mut page = self.page(action, label, &channels, shown, trial);
        page.is_draft = true;
        Ok((status, page))
    }

    /// The channels that are selected, and those that do not exist any more.
    fn selected_channels(&self) -> Vec<String> {
        if self.lists_channels.is_empty() {
            return commas(&self.channels);
        }
        let mut selected: Vec<String> = self
            .rest
            .iter()
            .filter(|(name, _)| name.starts_with("channel-"))
            .map(|(_, value)| value.clone())
            .collect();
        selected.sort_unstable();
        selected.extend(commas(&self.channels));
        selected
    }

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
            ..Self::default()
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
            channels: self.selected_channels(),
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
