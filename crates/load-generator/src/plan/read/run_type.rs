//! Run types and their users.

use super::field::{Result, at, check_name, wrong};
use crate::plan::document::{self, PlanDocument};
use crate::plan::users::UserTable;
use crate::plan::{Plan, RunType, Scenario, Variables};

const MAX_RUN_TYPES: usize = 16;

/// Returns the content of a file that the plan names.
pub(super) type File<'a> = &'a dyn Fn(&str) -> std::result::Result<String, String>;

pub(super) fn run_types(
    document: &PlanDocument,
    file: File<'_>,
    variables: &mut Variables,
) -> Result<Vec<RunType>> {
    if document.run.len() > MAX_RUN_TYPES {
        return Err(wrong("run", format!("a plan has at most {MAX_RUN_TYPES} run types")));
    }
    let mut run_types = Vec::new();
    let mut columns: Option<Vec<String>> = None;
    for (name, run) in &document.run {
        let path = format!("run.{name}");
        check_name(&path, name)?;
        let scale = run.scale.unwrap_or(1.0);
        if !(scale > 0.0 && scale <= 1000.0) {
            return Err(wrong(format!("{path}.scale"), "a scale is more than 0 and at most 1000"));
        }
        let (field, rows) = users(&path, run, file)?;
        if rows.rows.len() > Plan::MAX_ROWS {
            return Err(wrong(field, format!("a run type has at most {} users", Plan::MAX_ROWS)));
        }
        if columns.get_or_insert_with(|| rows.columns.clone()) != &rows.columns {
            return Err(wrong(field, "the users of all run types must have the same fields"));
        }
        let columns = rows.columns.iter().map(|column| variables.declare(column)).collect();
        let groups = run.groups.clone();
        run_types.push(RunType { name: name.clone(), groups, scale, columns, rows: rows.rows });
    }
    if run_types.is_empty() {
        run_types.push(default_run_type());
    }
    Ok(run_types)
}

/// The users of a run type, and the field that defines them.
fn users(path: &str, run: &document::RunType, file: File<'_>) -> Result<(String, UserTable)> {
    let (field, rows) = match (&run.csv, &run.csv_file, run.users.is_empty()) {
        (Some(csv), None, true) => (format!("{path}.csv"), UserTable::from_csv(csv)),
        (None, Some(name), true) => {
            (format!("{path}.csv_file"), file(name).and_then(|text| UserTable::from_csv(&text)))
        }
        (None, None, _) => (format!("{path}.users"), UserTable::from_tables(&run.users)),
        (csv, ..) => {
            let field = if csv.is_some() { "csv" } else { "csv_file" };
            return Err(wrong(format!("{path}.{field}"), "use only one of `users`, `csv` and `csv_file`"));
        }
    };
    let rows = rows.map_err(at(&field))?;
    Ok((field, rows))
}

pub(super) fn default_run_type() -> RunType {
    RunType { name: "default".into(), groups: None, scale: 1.0, columns: vec![], rows: vec![] }
}

/// Rejects groups without steps.
pub(super) fn check_groups(document: &PlanDocument, plan: &Plan) -> Result<()> {
    for (name, run) in &document.run {
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
            return Err(wrong(format!("run.{name}.groups"), "no scenario has a step in these groups"));
        }
    }
    Ok(())
}
