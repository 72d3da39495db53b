//! A step: its request, checks and extractions.

use std::collections::BTreeMap;
use std::time::Duration;

use hob_expression::Escape;

use super::body::body;
use super::field::{Result, at, check_name, period, think_time, timeout, wrong};
use crate::plan::check::{Check, Extraction, ValueSource, parse_path, parse_regex};
use crate::plan::document::{self, Statuses};
use crate::plan::request::{Origin, Request};
use crate::plan::template::Template;
use crate::plan::{Plan, Step};

const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

pub(super) struct Defaults<'a> {
    pub(super) target: Option<Origin>,
    pub(super) timeout: Duration,
    pub(super) headers: &'a BTreeMap<String, String>,
}

pub(super) fn step(
    plan: &mut Plan,
    defaults: &Defaults<'_>,
    path: &str,
    from: &document::Step,
) -> Result<Step> {
    check_name(&format!("{path}.name"), &from.name)?;
    if plan.steps.iter().any(|step| step.name == from.name) {
        return Err(wrong(format!("{path}.name"), "another step has this name"));
    }
    let request = request(plan, defaults, path, from)?;
    let checks = checks(&format!("{path}.expect"), &from.expect)?;
    let mut extract = Vec::new();
    for (name, text) in &from.extract {
        let from = ValueSource::parse(text).map_err(at(&format!("{path}.extract.{name}")))?;
        extract.push(Extraction { variable: plan.variables.declare(name), from });
    }
    let needs_body = checks.iter().any(Check::needs_body) || extract.iter().any(Extraction::needs_body);
    Ok(Step {
        name: from.name.clone(),
        group: from.group.clone(),
        request,
        checks,
        extract,
        think: think_time(&format!("{path}.think"), from.think.as_deref())?,
        timeout: timeout(&format!("{path}.timeout"), from.timeout.as_deref())?.unwrap_or(defaults.timeout),
        needs_body,
    })
}

fn request(plan: &mut Plan, defaults: &Defaults<'_>, path: &str, from: &document::Step) -> Result<Request> {
    let field = format!("{path}.request");
    let (method, url) =
        from.request.split_once(' ').ok_or_else(|| wrong(&field, "write a method and a path: \"GET /\""))?;
    if !METHODS.contains(&method) {
        return Err(wrong(field, format!("the method must be one of {}", METHODS.join(", "))));
    }
    let (origin, before, url_path) = if url.starts_with('/') {
        let target = defaults.target.clone();
        let target = target.ok_or_else(|| {
            wrong(&field, "a path needs the `target` of the plan; set it, or write a full URL")
        })?;
        (target, "", url)
    } else {
        let (before, url_path) = split_url(url).map_err(at(&field))?;
        (Origin::parse(before).map_err(at(&field))?, before, url_path)
    };
    let index = plan.origins.iter().position(|known| *known == origin).unwrap_or_else(|| {
        plan.origins.push(origin.clone());
        plan.origins.len() - 1
    });
    let variables = &plan.variables;
    let url_path = Template::parse(url_path, variables, Escape::Url)
        .map_err(|mistake| at(&field)(mistake.after(&format!("{method} {before}"))))?;
    let (content_type, body) =
        body(path, from, variables)?.map_or((None, None), |(content_type, body)| (content_type, Some(body)));
    let mut headers: BTreeMap<String, (String, &str)> = BTreeMap::new();
    let global = defaults.headers.iter().map(|(name, value)| ("headers".to_owned(), name, value));
    let own = from.headers.iter().map(|(name, value)| (format!("{path}.headers"), name, value));
    for (table, name, value) in global.chain(own) {
        check_header(&table, name, value)?;
        headers.insert(name.to_ascii_lowercase(), (table, value));
    }
    if let Some(content_type) = content_type {
        headers.entry("content-type".into()).or_insert_with(|| (path.to_owned(), content_type));
    }
    headers.entry("user-agent".into()).or_insert_with(|| (path.to_owned(), "hob"));
    let mut read = Vec::new();
    for (name, (table, value)) in headers {
        let value =
            Template::parse(value, variables, Escape::Header).map_err(at(&format!("{table}.{name}")))?;
        read.push((name, value));
    }
    Ok(Request::new(method.to_owned(), (index, &origin), url_path, read, body))
}

fn checks(path: &str, from: &document::Expect) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    match &from.status {
        None => {}
        Some(Statuses::One(status)) => checks.push(Check::Status(vec![*status])),
        Some(Statuses::Any(any)) if any.is_empty() => {
            return Err(wrong(format!("{path}.status"), "the list of statuses is empty"));
        }
        Some(Statuses::Any(any)) => checks.push(Check::Status(any.clone())),
    }
    for (name, contains) in &from.header {
        checks.push(Check::Header { name: name.clone(), contains: contains.clone() });
    }
    checks.extend(from.contains.clone().map(Check::Contains));
    if let Some(text) = &from.matches {
        checks.push(Check::Matches(parse_regex(text).map_err(at(&format!("{path}.matches")))?));
    }
    for (text, equals) in &from.json {
        let json_path = parse_path(text).map_err(at(&format!("{path}.json.{text}")))?;
        checks.push(Check::Json { path: json_path, equals: equals.0.clone() });
    }
    if let Some(text) = &from.within {
        checks.push(Check::Within(period(&format!("{path}.within"), text)?));
    }
    Ok(checks)
}

fn check_header(path: &str, name: &str, value: &str) -> Result<()> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) || value.chars().any(char::is_control) {
        return Err(wrong(format!("{path}.{name}"), "not a valid header"));
    }
    if ["host", "content-length", "transfer-encoding", "connection", "cookie"]
        .contains(&name.to_ascii_lowercase().as_str())
    {
        return Err(wrong(format!("{path}.{name}"), "this header is set by the generator itself"));
    }
    Ok(())
}

/// Splits a URL into `http://host:port` and the path.
pub(super) fn split_url(url: &str) -> std::result::Result<(&str, &str), String> {
    let after =
        url.find("://").map(|at| at + 3).ok_or_else(|| format!("{url:?} is neither a path nor a URL"))?;
    let end = url[after..].find(['/', '?', '#']).map_or(url.len(), |at| after + at);
    let (origin, rest) = url.split_at(end);
    let path = rest.split('#').next().unwrap_or_default();
    match path {
        "" => Ok((origin, "/")),
        path if path.starts_with('/') => Ok((origin, path)),
        _ => Err("write a path before the `?`".to_owned()),
    }
}
