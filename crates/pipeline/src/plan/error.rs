//! Errors in a plan, with their position.

/// An error in a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, {field}: {reason}")]
pub struct PlanError {
    pub line: usize,
    pub field: String,
    pub reason: String,
}

impl PlanError {
    #[allow(clippy::needless_pass_by_value, reason = "made for `map_err`")]
    pub(super) fn at(text: &str, offset: usize, field: String, reason: impl ToString) -> Self {
        let before = &text.as_bytes()[..offset.min(text.len())];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        Self { line, field, reason: reason.to_string() }
    }
}

/// The table and field at an offset.
pub(super) fn field_at(text: &str, offset: usize) -> String {
    let until = text[offset.min(text.len())..].find('\n').map_or(text.len(), |end| offset + end);
    let mut table = String::new();
    let mut field = String::new();
    for line in text[..until].lines() {
        let line = line.trim();
        if line.starts_with('[') {
            table = line.trim_matches(['[', ']']).to_owned();
            field.clear();
        } else if let Some((name, _)) = line.split_once('=') {
            name.trim().clone_into(&mut field);
        }
    }
    match (table.as_str(), field.as_str()) {
        ("", "") => "plan".to_owned(),
        ("", field) => field.to_owned(),
        (table, "") => table.to_owned(),
        (table, field) => format!("{table}.{field}"),
    }
}
