//! The kinds of runs, with their users.

use super::field::{Result, at, check_name, wrong};
use crate::plan::rows::Rows;
use crate::plan::source::{self, Source};
use crate::plan::{Names, Plan, RunType, Scenario};

const MOST_RUN_TYPES: usize = 16;

/// Finds what is in a file that the plan names.
pub(super) type File<'a> = &'a dyn Fn(&str) -> std::result::Result<String, String>;

pub(super) fn run_types(source: &Source, file: File<'_>, names: &mut Names) -> Result<Vec<RunType>> {
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

pub(super) fn default_run_type() -> RunType {
    RunType { name: "default".into(), groups: None, scale: 1.0, columns: vec![], rows: vec![] }
}

/// A group that no step is in is a slip of the pen.
pub(super) fn check_groups(source: &Source, plan: &Plan) -> Result<()> {
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
