//! Turns the text of a plan into a checked [`Plan`]; the first mistake is reported.

mod body;
mod field;
mod load;
mod run_type;
mod step;

use std::time::Duration;

use hob_document::Document;
use hob_expression::Escape;

use self::field::{Result, at, check_name, period, think_time, timeout, wrong};
use self::load::load;
use self::run_type::{File, check_groups, default_run_type, run_types};
use self::step::{Defaults, split_url, step};
use super::document::{self, PlanDocument};
use super::request::{Origin, Request};
use super::template::{Template, Variables};
use super::threshold::{Threshold, ThresholdMetric};
use super::{Format, LoadModel, Mistake, Plan, Scenario, Step, ThinkTime};

const TIMEOUT: Duration = Duration::from_secs(10);
const MAX_THRESHOLDS: usize = 32;

pub(super) fn plan(text: &str, format: Format, file: File<'_>) -> std::result::Result<Plan, Mistake> {
    let format = match format {
        Format::Toml => hob_document::Format::Toml,
        Format::Json => hob_document::Format::Json,
    };
    let document = Document::parse(text, format, Plan::MAX_BYTES)?;
    build(&document.read()?, file).map_err(|(field, message)| document.mistake(&field, message))
}

pub(super) fn quick(url: &str, load: LoadModel) -> std::result::Result<Plan, String> {
    let (before, path) = split_url(url)?;
    let origin = Origin::parse(before)?;
    let variables = Variables::new();
    let path = Template::parse(path, &variables, Escape::Url)
        .map_err(|mistake| mistake.after(before).to_string())?;
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
        Scenario { name: "quick".into(), load, steps: vec![0], think: ThinkTime::default(), pacing: None };
    Ok(Plan {
        name: url.to_owned(),
        scenarios: vec![scenario],
        steps: vec![step],
        origins: vec![origin],
        thresholds: vec![Threshold::default_error_rate()],
        run_types: vec![default_run_type()],
        values: vec![String::new(); variables.len()],
        variables,
        ca: None,
    })
}

fn build(document: &PlanDocument, file: File<'_>) -> Result<Plan> {
    check_name("name", &document.name)?;
    let mut variables = Variables::new();
    let mut values = Vec::new();
    for (name, value) in &document.vars {
        set(&mut values, variables.declare(name), value.0.clone());
    }
    let run_types = run_types(document, file, &mut variables)?;
    let mut plan = Plan {
        name: document.name.clone(),
        scenarios: vec![],
        steps: vec![],
        origins: vec![],
        thresholds: vec![],
        run_types,
        variables,
        values,
        ca: document.tls.as_ref().map(|tls| authorities(&tls.ca, file)).transpose().map_err(at("tls.ca"))?,
    };
    let defaults = Defaults {
        target: document.target.as_deref().map(Origin::parse).transpose().map_err(at("target"))?,
        timeout: timeout("timeout", document.timeout.as_deref())?.unwrap_or(TIMEOUT),
        headers: &document.headers,
    };
    if document.scenario.is_empty() || document.scenario.len() > Plan::MAX_SCENARIOS {
        return Err(wrong("scenario", format!("a plan has 1 to {} scenarios", Plan::MAX_SCENARIOS)));
    }
    for (index, scenario) in document.scenario.iter().enumerate() {
        add_scenario(&mut plan, &defaults, &format!("scenario[{index}]"), scenario)?;
    }
    plan.values.resize(plan.variables.len(), String::new());
    plan.thresholds = thresholds(document, &plan.steps)?;
    check_groups(document, &plan)?;
    Ok(plan)
}

/// The PEM text of certificate authorities, from the plan itself or from a file that it names.
fn authorities(ca: &str, file: File<'_>) -> std::result::Result<String, String> {
    use rustls_pki_types::CertificateDer;
    use rustls_pki_types::pem::PemObject;

    let pem = if ca.contains("-----BEGIN") { ca.to_owned() } else { file(ca)? };
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|error| format!("not valid PEM: {error}"))?;
        roots.add(certificate).map_err(|error| format!("not a usable certificate: {error}"))?;
    }
    if roots.is_empty() {
        return Err("no certificate found; give a certificate as PEM, or the name of a PEM file".to_owned());
    }
    Ok(pem)
}

fn add_scenario(
    plan: &mut Plan,
    defaults: &Defaults<'_>,
    path: &str,
    from: &document::Scenario,
) -> Result<()> {
    check_name(&format!("{path}.name"), &from.name)?;
    let load = load(&format!("{path}.load"), &from.load)?;
    let think = think_time(&format!("{path}.think"), from.think.as_deref())?.unwrap_or_default();
    let pacing = from.pacing.as_deref().map(|text| period(&format!("{path}.pacing"), text)).transpose()?;
    if from.step.is_empty() {
        return Err(wrong(format!("{path}.step"), "a scenario has at least one step"));
    }
    let mut steps = Vec::new();
    for (index, step) in from.step.iter().enumerate() {
        let path = format!("{path}.step[{index}]");
        if plan.steps.len() == Plan::MAX_STEPS {
            return Err(wrong(path, format!("a plan has at most {} steps", Plan::MAX_STEPS)));
        }
        let step = self::step(plan, defaults, &path, step)?;
        steps.push(plan.steps.len());
        plan.steps.push(step);
    }
    plan.scenarios.push(Scenario { name: from.name.clone(), load, steps, think, pacing });
    Ok(())
}

fn thresholds(document: &PlanDocument, steps: &[Step]) -> Result<Vec<Threshold>> {
    if document.thresholds.len() > MAX_THRESHOLDS {
        return Err(wrong("thresholds", format!("a plan has at most {MAX_THRESHOLDS} thresholds")));
    }
    let mut thresholds = Vec::new();
    for (index, threshold) in document.thresholds.iter().enumerate() {
        let path = format!("thresholds[{index}]");
        let (text, abort_after) = match threshold {
            document::Threshold::That(text) => (text, None),
            document::Threshold::Abort { that, abort_after } => {
                let field = format!("{path}.abort_after");
                (that, abort_after.as_deref().map(|text| period(&field, text)).transpose()?)
            }
        };
        let threshold = Threshold::parse(text, abort_after).map_err(at(&path))?;
        if let Some(name) =
            threshold.step.as_ref().filter(|name| steps.iter().all(|step| step.name != **name))
        {
            return Err(wrong(path, format!("there is no step {name:?}")));
        }
        thresholds.push(threshold);
    }
    let limits_errors =
        |threshold: &Threshold| threshold.step.is_none() && threshold.metric == ThresholdMetric::ErrorRate;
    if !thresholds.iter().any(limits_errors) {
        thresholds.push(Threshold::default_error_rate());
    }
    Ok(thresholds)
}

fn set(values: &mut Vec<String>, at: usize, value: String) {
    values.resize(values.len().max(at + 1), String::new());
    values[at] = value;
}
