//! Maintenance windows. Checks continue and incidents are recorded, but no alerts are sent, and the time does not count as
//! downtime.

use std::sync::Arc;

use hob_database::UnixMs;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::monitor::Monitor;
use crate::monitor::check::FieldError;

/// For longer times, pause the monitor.
const MAX_LENGTH_MS: i64 = 31 * 86_400_000;
const MAX_COVERS: usize = 64;

/// A maintenance window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Maintenance {
    pub id: String,
    #[serde(flatten)]
    pub spec: MaintenanceSpec,
}

/// A maintenance window as users write it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MaintenanceSpec {
    #[schema(min_length = 1, max_length = 128)]
    pub title: String,
    /// Ids, tags and groups of the monitors that it covers; all monitors if empty.
    #[serde(default)]
    #[schema(max_items = 64, value_type = Vec<hob_web::Text128>)]
    pub covers: Vec<String>,
    /// Unix milliseconds.
    #[schema(maximum = 9_223_372_036_854_775_807i64)]
    pub starts_at_ms: i64,
    /// Unix milliseconds, at most 31 days later.
    #[schema(maximum = 9_223_372_036_854_775_807i64)]
    pub ends_at_ms: i64,
}

impl Maintenance {
    /// Whether the window covers the monitor at this time.
    #[must_use]
    pub fn covers(&self, monitor: &Monitor, at: UnixMs) -> bool {
        let spec = &self.spec;
        (spec.starts_at_ms..spec.ends_at_ms).contains(&at.0)
            && (spec.covers.is_empty() || spec.covers.iter().any(|name| is_named(monitor, name)))
    }
}

/// Whether this is the id, the group or a tag of the monitor.
pub(crate) fn is_named(monitor: &Monitor, name: &String) -> bool {
    name == monitor.id.as_str() || *name == monitor.spec.group || monitor.spec.tags.contains(name)
}

impl MaintenanceSpec {
    /// Every error in the window. A name that matches no monitor is one: with a spelling mistake, the monitor that it should
    /// cover would send alerts.
    pub fn validate(&self, monitors: &[Arc<Monitor>]) -> Result<(), Vec<FieldError>> {
        let mut errors = Vec::new();
        if self.title.trim().is_empty() || self.title.len() > 128 {
            errors.push(FieldError::new("title", "must have 1 to 128 bytes"));
        }
        if self.covers.len() > MAX_COVERS || self.covers.iter().any(|name| name.len() > 128) {
            errors.push(FieldError::new(
                "covers",
                format!("must have at most {MAX_COVERS} names of at most 128 bytes each"),
            ));
        }
        for (index, name) in self.covers.iter().enumerate().take(MAX_COVERS) {
            if !monitors.iter().any(|monitor| is_named(monitor, name)) {
                let message = format!("{name:?} is not the id, a tag or the group of any monitor");
                errors.push(FieldError::new(format!("covers[{index}]"), message));
            }
        }
        let length_ms = self.ends_at_ms.saturating_sub(self.starts_at_ms);
        if self.starts_at_ms < 0 || !(1..=MAX_LENGTH_MS).contains(&length_ms) {
            errors.push(FieldError::new("ends_at_ms", "must be after the start, and at most 31 days later"));
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}
