//! From the text of a plan to a plan that can be run; the first mistake ends it.

use std::collections::BTreeMap;
use std::time::Duration;

use hob_house::Period;

use super::curve::{Curve, Leg};
use super::expect::{Check, Extract, From, parse_path, parse_regex};
use super::outline::{Outline, line_at, place_of};
use super::request::{Origin, Request};
use super::rows::Rows;
use super::source::{self, Source, Statuses};
use super::template::{Names, Template};
use super::threshold::Threshold;
use super::{ArrivalKind, Format, Load, Mistake, Pause, Plan, RunType, Scenario, Step};

const TIMEOUT: Duration = Duration::from_secs(10);
const LONGEST_TIMEOUT: Duration = Duration::from_secs(120);
const LONGEST_NAME: usize = 100;
const MOST_STAGES: usize = 100;
const MOST_RUN_TYPES: usize = 16;
const MOST_THRESHOLDS: usize = 32;
/// What an open scenario may hold at a time if the plan does not say.
const MOST_USERS: u32 = 1000;
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// A mistake whose line is not known yet.
type Refusal = (String, String);
type Result<T> = std::result::Result<T, Refusal>;

/// Finds what is in a file that the plan names.
type File<'a> = &'a dyn Fn(&str) -> std::result::Result<String, String>;

pub(super) fn plan(text: &str, format: Format, file: File<'_>) -> std::result::Result<Plan, Mistake> {
    let mistake = |line, field: &str, message: String| Mistake { line, field: field.to_owned(), message };
    if text.len() > Plan::MOST_BYTES {
        return Err(mistake(1, "", format!("a plan has at most {} KiB", Plan::MOST_BYTES >> 10)));
    }
    let source: std::result::Result<Source, (usize, String)> = match format {
        Format::Toml => toml::from_str(text)
            .map_err(|error| (error.span().map_or(0, |span| span.start), error.message().to_owned())),
        Format::Json => serde_json::from_str(text)
            .map_err(|error| (place_of(text, error.line(), error.column()), error.to_string())),
    };
    let outline = || match format {
        Format::Toml => Outline::of_toml(text),
        Format::Json => Outline::of_json(text),
    };
    let source =
        source.map_err(|(at, message)| mistake(line_at(text, at), outline().path_at(at), message))?;
    build(&source, file).map_err(|(field, message)| {
        let line = line_at(text, outline().start(&field));
        mistake(line, &field, message)
    })
}

pub(super) fn quick(url: &str, load: Load) -> std::result::Result<Plan, String> {
    let (origin, path) = split_url(url)?;
    let origin = Origin::parse(origin)?;
    let names = Names::new();
    let path = Template::parse(path, &names)?;
    let request = Request::new("GET".into(), (0, &origin), path, vec![], None);
    let step = Step {
        name: url.to_owned(),
        group: None,
        request,
        checks: vec![],
        extract: vec![],
        think: None,
        timeout: TIMEOUT,
        needs_body: false,
    };
    let scenario =
        Scenario { name: "quick".into(), load, steps: vec![0], think: Pause::default(), pacing: None };
    Ok(Plan {
        name: url.to_owned(),
        scenarios: vec![scenario],
        steps: vec![step],
        origins: vec![origin],
        thresholds: vec![],
        run_types: vec![default_run_type()],
        values: vec![String::new(); names.len()],
        names,
        ca: None,
    })
}

fn build(source: &Source, file: File<'_>) -> Result<Plan> {
    check_name("name", &source.name)?;
    let mut names = Names::new();
    let mut values = Vec::new();
    for (name, value) in &source.vars {
        set(&mut values, names.declare(name), value.0.clone());
    }
    let run_types = run_types(source, file, &mut names)?;
    let mut plan = Plan {
        name: source.name.clone(),
        scenarios: vec![],
        steps: vec![],
        origins: vec![],
        thresholds: vec![],
        run_types,
        names,
        values,
        ca: source.tls.as_ref().map(|tls| tls.ca.clone()),
    };
    let defaults = Defaults {
        target: source.target.as_deref().map(Origin::parse).transpose().map_err(at("target"))?,
        timeout: timeout("timeout", source.timeout.as_deref())?.unwrap_or(TIMEOUT),
        headers: &source.headers,
    };
    if source.scenario.is_empty() || source.scenario.len() > Plan::MOST_SCENARIOS {
        return Err(wrong("scenario", format!("a plan has 1 to {} scenarios", Plan::MOST_SCENARIOS)));
    }
    for (index, scenario) in source.scenario.iter().enumerate() {
        add_scenario(&mut plan, &defaults, &format!("scenario[{index}]"), scenario)?;
    }
    plan.values.resize(plan.names.len(), String::new());
    plan.thresholds = thresholds(source, &plan.steps)?;
    check_groups(source, &plan)?;
    Ok(plan)
}

struct Defaults<'a> {
    target: Option<Origin>,
    timeout: Duration,
    headers: &'a BTreeMap<String, String>,
}

fn run_types(source: &Source, file: File<'_>, names: &mut Names) -> Result<Vec<RunType>> {
    if source.run.len() > MOST_RUN_TYPES {
        return Err(wrong("run", format!("there are at most {MOST_RUN_TYPES} kinds of runs")));
    }
    let mut run_types = Vec::new();
    let mut columns: Option<Vec<String>> = None;
    for (name, run) in &source.run {
        let path = format!("run.{name}");
        check_name(&path, name)?;
        let scale = run.scale.unwrap_or(1.0);
        if !(scale > 0.0 && scale <= 1000.0) {
            return Err(wrong(format!("{path}.scale"), "a scale is more than 0 and at most 1000"));
        }
        let (field, rows) = users(&path, run, file)?;
        if rows.rows.len() > Plan::MOST_ROWS {
            return Err(wrong(field, format!("there are at most {} users", Plan::MOST_ROWS)));
        }
        if columns.get_or_insert_with(|| rows.columns.clone()) != &rows.columns {
            return Err(wrong(field, "the users of all kinds of runs have the same fields"));
        }
        let columns = rows.columns.iter().map(|column| names.declare(column)).collect();
        let groups = run.groups.clone();
        run_types.push(RunType { name: name.clone(), groups, scale, columns, rows: rows.rows });
    }
    if run_types.is_empty() {
        run_types.push(default_run_type());
    }
    Ok(run_types)
}

/// The users of a kind of run, and the field that they stand in.
fn users(path: &str, run: &source::RunType, file: File<'_>) -> Result<(String, Rows)> {
    let (field, rows) = match (&run.csv, &run.csv_file, run.users.is_empty()) {
        (Some(csv), None, true) => (format!("{path}.csv"), Rows::from_csv(csv)),
        (None, Some(name), true) => {
            (format!("{path}.csv_file"), file(name).and_then(|text| Rows::from_csv(&text)))
        }
        (None, None, _) => (format!("{path}.users"), Rows::from_tables(&run.users)),
        (csv, ..) => {
            let field = if csv.is_some() { "csv" } else { "csv_file" };
            return Err(wrong(
                format!("{path}.{field}"),
                "users are given as one of `users`, `csv` and `csv_file`",
            ));
        }
    };
    let rows = rows.map_err(at(&field))?;
    Ok((field, rows))
}

fn default_run_type() -> RunType {
    RunType { name: "default".into(), groups: None, scale: 1.0, columns: vec![], rows: vec![] }
}

fn add_scenario(plan: &mut Plan, defaults: &Defaults<'_>, path: &str, from: &source::Scenario) -> Result<()> {
    check_name(&format!("{path}.name"), &from.name)?;
    let load = load(&format!("{path}.load"), &from.load)?;
    let think = pause(&format!("{path}.think"), from.think.as_deref())?.unwrap_or_default();
    let pacing = from.pacing.as_deref().map(|text| period(&format!("{path}.pacing"), text)).transpose()?;
    if from.step.is_empty() {
        return Err(wrong(format!("{path}.step"), "a scenario has at least one step"));
    }
    let mut steps = Vec::new();
    for (index, step) in from.step.iter().enumerate() {
        let path = format!("{path}.step[{index}]");
        if plan.steps.len() == Plan::MOST_STEPS {
            return Err(wrong(path, format!("a plan has at most {} steps", Plan::MOST_STEPS)));
        }
        let step = self::step(plan, defaults, &path, step)?;
        steps.push(plan.steps.len());
        plan.steps.push(step);
    }
    plan.scenarios.push(Scenario { name: from.name.clone(), load, steps, think, pacing });
    Ok(())
}

fn load(path: &str, from: &source::Load) -> Result<Load> {
    let stages = match (&from.stages, &from.r#for) {
        (Some(stages), None) => stages.iter().map(|stage| (stage.rate, stage.users, &*stage.r#for)).collect(),
        (None, Some(lasting)) => {
            let ramp = from.ramp.as_deref().map(|ramp| (from.rate, from.users, ramp));
            ramp.into_iter().chain([(from.rate, from.users, lasting.as_str())]).collect::<Vec<_>>()
        }
        _ => return Err(wrong(path, "a load has `for`, or `stages` that each have one")),
    };
    if stages.is_empty() || stages.len() > MOST_STAGES {
        return Err(wrong(path, format!("there are 1 to {MOST_STAGES} stages")));
    }
    let is_open = stages.iter().all(|(rate, users, _)| rate.is_some() && users.is_none());
    let is_closed = stages.iter().all(|(rate, users, _)| rate.is_none() && users.is_some());
    if is_open == is_closed {
        return Err(wrong(path, "a load has either a `rate` (arrivals per second) or `users`"));
    }
    let most = if is_open { Plan::MOST_RATE } else { Plan::MOST_USERS };
    // A level that is held begins there; one that is reached in stages begins with nothing.
    let mut level =
        if from.stages.is_none() && from.ramp.is_none() { stages[0].0.or(stages[0].1) } else { None };
    let mut legs = Vec::new();
    for (index, (rate, users, lasting)) in stages.iter().enumerate() {
        let field = if from.stages.is_some() { format!("{path}.stages[{index}]") } else { path.to_owned() };
        let to = rate.or(*users).unwrap_or_default();
        if !(to >= 0.0 && to <= most) {
            return Err(wrong(field, format!("a level is between 0 and {most}")));
        }
        let seconds = period(&format!("{field}.for"), lasting)?.as_secs_f64();
        if seconds <= 0.0 {
            return Err(wrong(format!("{field}.for"), "it takes no time"));
        }
        legs.push(Leg { from: level.unwrap_or(0.0), to, seconds });
        level = Some(to);
    }
    let curve = Curve::new(legs);
    if curve.duration() > Plan::LONGEST {
        return Err(wrong(path, "a test lasts at most a day"));
    }
    if curve.peak() <= 0.0 {
        return Err(wrong(path, "there is no load at any time"));
    }
    if is_closed {
        return Ok(Load::Closed { users: curve });
    }
    let arrivals = match from.arrivals.as_deref() {
        None | Some("even") => ArrivalKind::Even,
        Some("poisson") => ArrivalKind::Poisson,
        Some(_) => return Err(wrong(format!("{path}.arrivals"), "arrivals are \"even\" or \"poisson\"")),
    };
    let most_users = from.most_users.unwrap_or(MOST_USERS);
    if !(1..=Plan::MOST_USERS as u32).contains(&most_users) {
        return Err(wrong(
            format!("{path}.most_users"),
            format!("there are 1 to {} users", Plan::MOST_USERS),
        ));
    }
    Ok(Load::Open { rate: curve, arrivals, most_users })
}

fn step(plan: &mut Plan, defaults: &Defaults<'_>, path: &str, from: &source::Step) -> Result<Step> {
    check_name(&format!("{path}.name"), &from.name)?;
    if plan.steps.iter().any(|step| step.name == from.name) {
        return Err(wrong(format!("{path}.name"), "another step has this name"));
    }
    let request = request(plan, defaults, path, from)?;
    let checks = checks(&format!("{path}.expect"), &from.expect)?;
    let mut extract = Vec::new();
    for (name, text) in &from.extract {
        let from = From::parse(text).map_err(at(&format!("{path}.extract.{name}")))?;
        extract.push(Extract { variable: plan.names.declare(name), from });
    }
    let needs_body = checks.iter().any(Check::needs_body) || extract.iter().any(Extract::needs_body);
    Ok(Step {
        name: from.name.clone(),
        group: from.group.clone(),
        request,
        checks,
        extract,
        think: pause(&format!("{path}.think"), from.think.as_deref())?,
        timeout: timeout(&format!("{path}.timeout"), from.timeout.as_deref())?.unwrap_or(defaults.timeout),
        needs_body,
    })
}

fn request(plan: &mut Plan, defaults: &Defaults<'_>, path: &str, from: &source::Step) -> Result<Request> {
    let field = format!("{path}.request");
    let (method, url) =
        from.request.split_once(' ').ok_or_else(|| wrong(&field, "write a method and a path: \"GET /\""))?;
    if !METHODS.contains(&method) {
        return Err(wrong(field, format!("the method is one of {}", METHODS.join(", "))));
    }
    let (origin, url_path) = if url.starts_with('/') {
        let target = defaults.target.clone();
        (target.ok_or_else(|| wrong(&field, "the plan has no `target` that this path belongs to"))?, url)
    } else {
        let (origin, url_path) = split_url(url).map_err(at(&field))?;
        (Origin::parse(origin).map_err(at(&field))?, url_path)
    };
    let index = plan.origins.iter().position(|known| *known == origin).unwrap_or_else(|| {
        plan.origins.push(origin.clone());
        plan.origins.len() - 1
    });
    let names = &plan.names;
    let url_path = Template::parse(url_path, names).map_err(at(&field))?;
    let (kind, body) = body(path, from, names)?.map_or((None, None), |(kind, body)| (kind, Some(body)));
    let mut headers: BTreeMap<String, (String, &str)> = BTreeMap::new();
    let global = defaults.headers.iter().map(|(name, value)| ("headers".to_owned(), name, value));
    let own = from.headers.iter().map(|(name, value)| (format!("{path}.headers"), name, value));
    for (table, name, value) in global.chain(own) {
        check_header(&table, name, value)?;
        headers.insert(name.to_ascii_lowercase(), (table, value));
    }
    if let Some(kind) = kind {
        headers.entry("content-type".into()).or_insert_with(|| (path.to_owned(), kind));
    }
    headers.entry("user-agent".into()).or_insert_with(|| (path.to_owned(), "hob"));
    let mut read = Vec::new();
    for (name, (table, value)) in headers {
        let value = Template::parse(value, names).map_err(at(&format!("{table}.{name}")))?;
        read.push((name, value));
    }
    Ok(Request::new(method.to_owned(), (index, &origin), url_path, read, body))
}

/// The body, and the type that its form implies.
fn body(path: &str, from: &source::Step, names: &Names) -> Result<Option<(Option<&'static str>, Template)>> {
    let parse =
        |field: &str, text: &str| Template::parse(text, names).map_err(at(&format!("{path}.{field}")));
    match (&from.body, &from.json, &from.form) {
        (None, None, None) => Ok(None),
        (Some(text), None, None) => Ok(Some((None, parse("body", text)?))),
        (None, Some(json), None) => {
            Ok(Some((Some("application/json"), parse("json", &json.to_string())?.in_json())))
        }
        (None, None, Some(form)) => {
            let field =
                |(name, value): (&'_ String, &source::Scalar)| Ok((name.clone(), parse("form", &value.0)?));
            let fields = form.iter().map(field).collect::<Result<Vec<_>>>()?;
            let fields = fields.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
            Ok(Some((Some("application/x-www-form-urlencoded"), Template::form(fields))))
        }
        _ => Err(wrong(format!("{path}.body"), "a request has one of `body`, `json` and `form`")),
    }
}

fn checks(path: &str, from: &source::Expect) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    match &from.status {
        None => {}
        Some(Statuses::One(status)) => checks.push(Check::Status(vec![*status])),
        Some(Statuses::Any(any)) if any.is_empty() => {
            return Err(wrong(format!("{path}.status"), "no status is expected"));
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

fn thresholds(source: &Source, steps: &[Step]) -> Result<Vec<Threshold>> {
    if source.thresholds.len() > MOST_THRESHOLDS {
        return Err(wrong("thresholds", format!("there are at most {MOST_THRESHOLDS} thresholds")));
    }
    let mut thresholds = Vec::new();
    for (index, threshold) in source.thresholds.iter().enumerate() {
        let path = format!("thresholds[{index}]");
        let (text, abort_after) = match threshold {
            source::Threshold::That(text) => (text, None),
            source::Threshold::Abort { that, abort_after } => {
                let field = format!("{path}.abort_after");
                (that, abort_after.as_deref().map(|text| period(&field, text)).transpose()?)
            }
        };
        let threshold = Threshold::parse(text, abort_after).map_err(at(&path))?;
        if let Some(name) =
            threshold.step.as_ref().filter(|name| steps.iter().all(|step| step.name != **name))
        {
            return Err(wrong(path, format!("no step is called {name:?}")));
        }
        thresholds.push(threshold);
    }
    Ok(thresholds)
}

/// A group that no step is in is a slip of the pen.
fn check_groups(source: &Source, plan: &Plan) -> Result<()> {
    for (name, run) in &source.run {
        for (index, group) in run.groups.iter().flatten().enumerate() {
            if plan.steps.iter().all(|step| step.group.as_ref() != Some(group)) {
                return Err(wrong(format!("run.{name}.groups[{index}]"), "no step is in this group"));
            }
        }
        let index = plan.run_type(name).unwrap_or_default();
        let run_type = &plan.run_types[index];
        let all =
            |scenario: &Scenario| scenario.steps.iter().any(|step| run_type.includes(&plan.steps[*step]));
        if !plan.scenarios.iter().any(all) {
            return Err(wrong(format!("run.{name}.groups"), "these groups leave no step to run"));
        }
    }
    Ok(())
}

fn check_name(path: &str, name: &str) -> Result<()> {
    let is_plain = |name: &str| name.trim() == name && !name.chars().any(char::is_control);
    if (1..=LONGEST_NAME).contains(&name.len()) && is_plain(name) {
        return Ok(());
    }
    Err(wrong(path, format!("a name has 1 to {LONGEST_NAME} characters, no space at either end")))
}

fn check_header(path: &str, name: &str, value: &str) -> Result<()> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) || value.chars().any(char::is_control) {
        return Err(wrong(format!("{path}.{name}"), "this cannot be sent as a header"));
    }
    if ["host", "content-length", "transfer-encoding", "connection", "cookie"]
        .contains(&name.to_ascii_lowercase().as_str())
    {
        return Err(wrong(format!("{path}.{name}"), "this header is written by the generator itself"));
    }
    Ok(())
}

/// `http://host:port` and the rest, which is a path.
fn split_url(url: &str) -> std::result::Result<(&str, &str), String> {
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

fn period(path: &str, text: &str) -> Result<Duration> {
    text.parse::<Period>().map(Period::get).map_err(|error| wrong(path, error.to_string()))
}

fn timeout(path: &str, text: Option<&str>) -> Result<Option<Duration>> {
    let Some(text) = text else { return Ok(None) };
    let timeout = period(path, text)?;
    if timeout.is_zero() || timeout > LONGEST_TIMEOUT {
        return Err(wrong(path, format!("a timeout is at most {}s", LONGEST_TIMEOUT.as_secs())));
    }
    Ok(Some(timeout))
}

/// `100ms`, or `100ms..500ms`.
fn pause(path: &str, text: Option<&str>) -> Result<Option<Pause>> {
    let Some(text) = text else { return Ok(None) };
    let (least, most) = text.split_once("..").unwrap_or((text, text));
    let (least, most) = (period(path, least)?, period(path, most)?);
    if least > most || most > Plan::LONGEST {
        return Err(wrong(path, "the first time is the shorter one"));
    }
    Ok(Some(Pause { least, most }))
}

fn set(values: &mut Vec<String>, at: usize, value: String) {
    values.resize(values.len().max(at + 1), String::new());
    values[at] = value;
}

fn wrong(path: impl Into<String>, message: impl Into<String>) -> Refusal {
    (path.into(), message.into())
}

fn at(path: &str) -> impl Fn(String) -> Refusal {
    let path = path.to_owned();
    move |message| (path.clone(), message)
}
