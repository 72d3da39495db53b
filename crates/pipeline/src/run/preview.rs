//! A dry run: the requests for the first items of a source, and where their results would go. No call is made, because a call
//! counts against the quota.

use std::collections::BTreeMap;

use hob_expression::Escape;
use hob_service::config::{Secret, SecretName};
use serde::Serialize;
use utoipa::ToSchema;

use crate::error::Result;
use crate::pipeline::Pipelines;
use crate::plan::secrets::check_plan;
use crate::plan::template::{TemplateError, TemplateValues};
use crate::plan::{PAGES_STEP, Plan, Sink};
use crate::run::attempt::{RequestTemplates, parse_data};
use crate::run::item::NewItem;
use crate::run::seed;

/// Items of the source that are shown.
const MAX_ITEMS: usize = 3;
/// Maximum length of a URL, a header or a body in the preview.
const MAX_CHARS: usize = 2000;
/// Stands for the value of a secret.
const MASKED: &str = "SECRET";

/// What a run would do with an item.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = PipelinePreviewItem)]
pub struct PreviewItem {
    pub step: String,
    pub key: String,
    /// Null if the step makes no call: its result is the data of the item.
    pub request: Option<PreviewRequest>,
    /// Why the request cannot be made; null if it can.
    pub error: Option<String>,
    /// The file or table that the result is written to; null if it is not written.
    pub output: Option<String>,
    /// The members of the result; empty if it is the whole response.
    pub members: Vec<String>,
    /// The steps of the items that the response creates.
    pub following: Vec<String>,
}

/// A request as it would be sent. The values of secrets are replaced by `SECRET`.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = PipelinePreviewRequest)]
pub struct PreviewRequest {
    pub method: String,
    pub url: String,
    pub headers: BTreeMap<String, String>,
    pub body: Option<String>,
}

impl Pipelines {
    /// What a run of the plan would do with the first items of its source.
    pub async fn preview(&self, plan: &Plan) -> Result<Vec<PreviewItem>> {
        check_plan(&self.shared.context.secrets, plan)?;
        let items = seed::first(plan, &self.shared.folder, MAX_ITEMS).await?;
        Ok(items.iter().map(|item| preview(plan, item)).collect())
    }
}

fn preview(plan: &Plan, item: &NewItem) -> PreviewItem {
    let (request, error) = match request(plan, item) {
        Ok(request) => (request, None),
        Err(error) => (None, Some(error)),
    };
    // The pages of a listing create the items of its step.
    let step = plan.steps.get(&item.step);
    let following = match step {
        Some(step) => step.follow.iter().map(|follow| follow.step.get_ref().clone()).collect(),
        None => vec![plan.source.step().to_owned()],
    };
    let sink = step.and_then(|step| step.sink.as_ref()).and_then(|name| plan.sinks.get(name.get_ref()));
    PreviewItem {
        step: item.step.clone(),
        key: shorten(&item.key),
        request,
        error,
        output: sink.map(describe),
        members: step.map(|step| step.extract.keys().cloned().collect()).unwrap_or_default(),
        following,
    }
}

fn request(plan: &Plan, item: &NewItem) -> Result<Option<PreviewRequest>, String> {
    if plan.calls_of(&item.step) == 0 {
        return Ok(None);
    }
    let step = plan.steps.get(&item.step).filter(|_| item.step != PAGES_STEP);
    let templates = RequestTemplates::of(plan, step)?;
    let data = parse_data(&item.data)?;
    let secrets = |_: &SecretName| Ok(Secret::from(MASKED.to_owned()));
    let values = TemplateValues { key: &item.key, data: &data, secrets: &secrets };
    let text = |error: TemplateError| error.to_string();
    let mut headers = BTreeMap::new();
    for (name, value) in templates.headers {
        headers.insert(name.clone(), shorten(&value.render(&values, Escape::Header).map_err(text)?));
    }
    let body = templates.body.map(|body| body.render(&values, Escape::Json)).transpose().map_err(text)?;
    Ok(Some(PreviewRequest {
        method: templates.method().to_string(),
        url: shorten(&templates.url(&values).map_err(text)?),
        headers,
        body: body.map(|body| shorten(&body)),
    }))
}

fn describe(sink: &Sink) -> String {
    match sink {
        Sink::JsonLines { path } => format!("file {path}"),
        Sink::Table { table, key, .. } => format!("table {table}, key {}", key.join(", ")),
    }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(MAX_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
