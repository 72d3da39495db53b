//! `/api/v1/schemas`: the key schemas of this server, and an audit of its Redis.

use axum::extract::State;
use hob_database::UnixMs;
use hob_schema::{Keyspace, Layout};
use hob_units::unix_ms;
use hob_web::{Access, Audited, Json, Routes, Time};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::SCOPE;
use super::audit::{AuditRun, AuditState, BackgroundAudit};
use crate::schema;

/// The age of an audit that the Keys page also accepts.
const DEFAULT_MAX_AGE_MS: u64 = 60_000;
const MAX_AGE_MS: u64 = 86_400_000;

pub(super) fn routes() -> Routes<BackgroundAudit> {
    Routes::new().api(Access::read(SCOPE), routes!(list_schemas)).write(
        Access::write(SCOPE),
        Audited::No,
        routes!(audit_keys),
    )
}

/// The key schemas of a server.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(as = KeySchemas)]
pub(crate) struct SchemasView {
    /// Whether the keys have hash tags, as on a Cluster.
    pub(crate) tagged: bool,
    pub(crate) schemas: Vec<SchemaView>,
}

/// A key schema.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(as = KeySchema)]
pub(crate) struct SchemaView {
    pub(crate) name: String,
    /// The name of the file.
    pub(crate) file: String,
    pub(crate) purpose: Option<String>,
    /// The schema in TOML.
    pub(crate) source: String,
}

/// An audit to request.
#[derive(Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = KeyAuditRequest)]
pub(crate) struct AuditRequest {
    /// Start a new audit if the last one ended longer ago than this; a minute by default.
    #[schema(maximum = 86_400_000)]
    pub(crate) max_age_ms: Option<u64>,
}

/// The state of an audit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = KeyAuditState)]
pub(crate) enum AuditProgress {
    /// Repeat the request until it is complete.
    Running,
    Complete,
    Failed,
}

/// An audit of the keys in the server's Redis.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(as = KeyAudit)]
pub(crate) struct AuditView {
    pub(crate) state: AuditProgress,
    /// Keys that a running audit has checked.
    pub(crate) checked_keys: u64,
    /// Keys that a running audit expects.
    pub(crate) expected_keys: u64,
    /// When the audit ended.
    pub(crate) ended_at: Option<Time>,
    /// Why the audit failed.
    pub(crate) error: Option<String>,
    /// The report of a complete audit, as `hob schema audit --format json` prints it.
    #[schema(value_type = Option<Object>)]
    pub(crate) report: Option<serde_json::Value>,
}

/// Get the key schemas of this server.
#[utoipa::path(get, path = "/api/v1/schemas", responses((status = 200, body = SchemasView)))]
async fn list_schemas(State(audit): State<BackgroundAudit>) -> Json<SchemasView> {
    let spaces = audit.catalog().spaces();
    let view = |space: &Keyspace| {
        let schema = space.schema();
        SchemaView {
            name: schema.name.clone(),
            file: schema.file.clone(),
            purpose: schema.purpose.clone(),
            source: schema::own_source(&schema.file).unwrap_or_default().to_owned(),
        }
    };
    let tagged = spaces.iter().any(|space| space.layout() == Layout::Tagged);
    Json(SchemasView { tagged, schemas: spaces.iter().map(view).collect() })
}

/// Get the last audit of the keys, or start a new one if it is too old. A request does not wait for the end of the audit:
/// repeat it with the same or a longer age.
#[utoipa::path(post, path = "/api/v1/schemas/audit", request_body = Option<AuditRequest>,
    responses((status = 200, body = AuditView)))]
async fn audit_keys(
    State(audit): State<BackgroundAudit>,
    request: Option<Json<AuditRequest>>,
) -> Json<AuditView> {
    let Json(request) = request.unwrap_or_default();
    let max_age_ms = request.max_age_ms.unwrap_or(DEFAULT_MAX_AGE_MS).min(MAX_AGE_MS);
    let state = audit.refresh_after(max_age_ms);
    Json(AuditView::new(&state, unix_ms().saturating_sub(max_age_ms)))
}

impl AuditView {
    /// The latest audit, if it ended at this time or later; otherwise the one that runs.
    fn new(state: &AuditState, since_ms: u64) -> AuditView {
        let empty = AuditView {
            state: AuditProgress::Running,
            checked_keys: 0,
            expected_keys: 0,
            ended_at: None,
            error: None,
            report: None,
        };
        match (&state.run, &state.report) {
            (AuditRun::Failed { reason, at_ms }, _) if *at_ms >= since_ms => {
                let (state, ended_at) = (AuditProgress::Failed, Some(time(*at_ms)));
                AuditView { state, ended_at, error: Some(reason.clone()), ..empty }
            }
            (_, Some(report)) if report.at_ms >= since_ms => AuditView {
                state: AuditProgress::Complete,
                ended_at: Some(time(report.at_ms)),
                report: serde_json::to_value(&report.audit).ok(),
                ..empty
            },
            (AuditRun::Running { keys, expected }, _) => {
                AuditView { checked_keys: *keys, expected_keys: *expected, ..empty }
            }
            _ => empty,
        }
    }
}

fn time(unix_ms: u64) -> Time {
    Time(UnixMs(i64::try_from(unix_ms).unwrap_or(i64::MAX)))
}
